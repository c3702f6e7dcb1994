// The loops of the LHCb analysis in ROOT: events into an RNTuple, and the analysis of one.
// selection.py has the same analysis in numpy, operation by operation.
#include <ROOT/RNTupleModel.hxx>
#include <ROOT/RNTupleReader.hxx>
#include <ROOT/RNTupleWriteOptions.hxx>
#include <ROOT/RNTupleWriter.hxx>
#ifdef WITH_DAOS
#include <ROOT/RNTupleWriteOptionsDaos.hxx>
#endif
#include <chrono>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>
// Not `inline`: such functions are compiled where they are called first, and not optimised.
#pragma cling optimize(3)

namespace fsmatrix_lhcb {

double now() {
  using namespace std::chrono;
  return duration<double>(system_clock::now().time_since_epoch()).count();
}

// bytes that this process has read by system calls
long long read_so_far() {
  std::ifstream io("/proc/self/io");
  std::string name;
  long long value = 0;
  while (io >> name >> value)
    if (name == "rchar:") return value;
  return 0;
}

std::unique_ptr<ROOT::RNTupleWriteOptions> options(
    int compression, std::size_t page, std::size_t cluster, const std::string& object_class) {
#ifdef WITH_DAOS
  auto daos = std::make_unique<ROOT::RNTupleWriteOptionsDaos>();
  if (!object_class.empty()) daos->SetObjectClass(object_class);
  std::unique_ptr<ROOT::RNTupleWriteOptions> made = std::move(daos);
#else
  auto made = std::make_unique<ROOT::RNTupleWriteOptions>();
#endif
  made->SetCompression(compression);
  made->SetMaxUnzippedPageSize(page);
  if (made->GetInitialUnzippedPageSize() > page) made->SetInitialUnzippedPageSize(page);
  if (cluster) {
    if (cluster > made->GetMaxUnzippedClusterSize()) made->SetMaxUnzippedClusterSize(cluster);
    made->SetApproxZippedClusterSize(cluster);
  }
  return made;
}

// `kinds`: f (double) or i (std::int32_t) for each column; times: began, opened, moved, ended
long long write(const std::string& place, const std::string& ntuple,
                       const std::vector<std::string>& names, const std::string& kinds,
                       const unsigned long* columns, long long events, int compression,
                       std::size_t page, std::size_t cluster, const std::string& object_class,
                       double* times) {
  times[0] = now();
  auto model = ROOT::RNTupleModel::CreateBare();
  for (std::size_t c = 0; c < names.size(); ++c) {
    if (kinds[c] == 'f')
      model->MakeField<double>(names[c]);
    else
      model->MakeField<std::int32_t>(names[c]);
  }
  auto how = options(compression, page, cluster, object_class);
  auto writer = ROOT::RNTupleWriter::Recreate(std::move(model), ntuple, place, *how);
#ifdef WITH_DAOS
  writer->EnableMetrics();
#endif
  auto entry = writer->CreateEntry();
  std::vector<std::pair<double*, const double*>> reals;
  std::vector<std::pair<std::int32_t*, const std::int32_t*>> wholes;
  for (std::size_t c = 0; c < names.size(); ++c) {
    if (kinds[c] == 'f')
      reals.emplace_back(entry->GetPtr<double>(names[c]).get(), (const double*)columns[c]);
    else
      wholes.emplace_back(entry->GetPtr<std::int32_t>(names[c]).get(),
                          (const std::int32_t*)columns[c]);
  }
  times[1] = now();
  for (long long i = 0; i < events; ++i) {
    for (auto& [to, from] : reals) *to = from[i];
    for (auto& [to, from] : wholes) *to = from[i];
    writer->Fill(*entry);
  }
  times[2] = now();
  writer->CommitDataset();  // the destructor would keep a full disk to itself
  long long stored = 0;
#ifdef WITH_DAOS
  auto counter = writer->GetMetrics().GetCounter("RNTupleWriter.RPageSinkBuf.RPageSinkDaos.szWritePayload");
  if (counter) stored = counter->GetValueAsInt();
#endif
  writer.reset();
  times[3] = now();
  return stored;
}

// found: events, and those left by each cut; below and above the histogram; counts: its bins
long long read(const std::string& place, const std::string& ntuple, long* found,
                      long* counts, double* times) {
#pragma STDC FP_CONTRACT OFF
  constexpr double kaon = 493.677, low = 5050., high = 5500.;
  constexpr int bins = 500;
  constexpr double per_mev = bins / (high - low);
  long long before = read_so_far();
  times[0] = now();
  auto reader = ROOT::RNTupleReader::Open(ntuple, place);
#ifdef WITH_DAOS
  reader->EnableMetrics();
#endif
  {  // views must go before their reader
  auto h1_muon = reader->GetView<std::int32_t>("H1_isMuon");
  auto h2_muon = reader->GetView<std::int32_t>("H2_isMuon");
  auto h3_muon = reader->GetView<std::int32_t>("H3_isMuon");
  auto h1_k = reader->GetView<double>("H1_ProbK");
  auto h2_k = reader->GetView<double>("H2_ProbK");
  auto h3_k = reader->GetView<double>("H3_ProbK");
  auto h1_pi = reader->GetView<double>("H1_ProbPi");
  auto h2_pi = reader->GetView<double>("H2_ProbPi");
  auto h3_pi = reader->GetView<double>("H3_ProbPi");
  auto h1_x = reader->GetView<double>("H1_PX");
  auto h1_y = reader->GetView<double>("H1_PY");
  auto h1_z = reader->GetView<double>("H1_PZ");
  auto h2_x = reader->GetView<double>("H2_PX");
  auto h2_y = reader->GetView<double>("H2_PY");
  auto h2_z = reader->GetView<double>("H2_PZ");
  auto h3_x = reader->GetView<double>("H3_PX");
  auto h3_y = reader->GetView<double>("H3_PY");
  auto h3_z = reader->GetView<double>("H3_PZ");
  times[1] = now();
  for (auto i : *reader) {
    ++found[0];
    if (h1_muon(i) || h2_muon(i) || h3_muon(i)) continue;
    ++found[1];
    if (!(h1_k(i) >= 0.5 && h2_k(i) >= 0.5 && h3_k(i) >= 0.5)) continue;
    ++found[2];
    if (!(h1_pi(i) <= 0.5 && h2_pi(i) <= 0.5 && h3_pi(i) <= 0.5)) continue;
    ++found[3];
    const double x1 = h1_x(i), y1 = h1_y(i), z1 = h1_z(i);
    const double x2 = h2_x(i), y2 = h2_y(i), z2 = h2_z(i);
    const double x3 = h3_x(i), y3 = h3_y(i), z3 = h3_z(i);
    const double e1 = std::sqrt(x1 * x1 + y1 * y1 + z1 * z1 + kaon * kaon);
    const double e2 = std::sqrt(x2 * x2 + y2 * y2 + z2 * z2 + kaon * kaon);
    const double e3 = std::sqrt(x3 * x3 + y3 * y3 + z3 * z3 + kaon * kaon);
    const double x = x1 + x2 + x3, y = y1 + y2 + y3, z = z1 + z2 + z3, e = e1 + e2 + e3;
    const double square = e * e - (x * x + y * y + z * z);
    const double mass = std::sqrt(square > 0. ? square : 0.);
    if (mass < low)
      ++found[4];
    else if (!(mass < high))
      ++found[5];
    else {
      const int bin = static_cast<int>((mass - low) * per_mev);
      ++counts[bin < bins ? bin : bins - 1];
    }
  }
  times[2] = now();
  }
  long long stored = read_so_far() - before;
#ifdef WITH_DAOS
  auto counter = reader->GetMetrics().GetCounter("RNTupleReader.RPageSourceDaos.szReadPayload");
  if (counter) stored = counter->GetValueAsInt();
#endif
  reader.reset();
  times[3] = now();
  return stored;
}

}  // namespace fsmatrix_lhcb
