// The LHCb analysis as one would write it for ROOT alone; prints seconds of its loop and the events
// that pass the cuts.
#include <ROOT/RNTupleReader.hxx>
#include <TH1D.h>
#include <chrono>
#include <cmath>
#include <cstdio>
#pragma cling optimize(3)

void lhcb_macro(const char* path) {
  auto ntuple = ROOT::RNTupleReader::Open("DecayTree", path);
  auto h1_muon = ntuple->GetView<int>("H1_isMuon");
  auto h2_muon = ntuple->GetView<int>("H2_isMuon");
  auto h3_muon = ntuple->GetView<int>("H3_isMuon");
  auto h1_px = ntuple->GetView<double>("H1_PX");
  auto h1_py = ntuple->GetView<double>("H1_PY");
  auto h1_pz = ntuple->GetView<double>("H1_PZ");
  auto h1_k = ntuple->GetView<double>("H1_ProbK");
  auto h1_pi = ntuple->GetView<double>("H1_ProbPi");
  auto h2_px = ntuple->GetView<double>("H2_PX");
  auto h2_py = ntuple->GetView<double>("H2_PY");
  auto h2_pz = ntuple->GetView<double>("H2_PZ");
  auto h2_k = ntuple->GetView<double>("H2_ProbK");
  auto h2_pi = ntuple->GetView<double>("H2_ProbPi");
  auto h3_px = ntuple->GetView<double>("H3_PX");
  auto h3_py = ntuple->GetView<double>("H3_PY");
  auto h3_pz = ntuple->GetView<double>("H3_PZ");
  auto h3_k = ntuple->GetView<double>("H3_ProbK");
  auto h3_pi = ntuple->GetView<double>("H3_ProbPi");
  TH1D mass("mass", "", 500, 5050, 5500);
  constexpr double kaon2 = 493.677 * 493.677;
  long passed = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (auto i : *ntuple) {
    if (h1_muon(i) || h2_muon(i) || h3_muon(i)) continue;
    if (h1_k(i) < 0.5 || h2_k(i) < 0.5 || h3_k(i) < 0.5) continue;
    if (h1_pi(i) > 0.5 || h2_pi(i) > 0.5 || h3_pi(i) > 0.5) continue;
    ++passed;
    const double x = h1_px(i) + h2_px(i) + h3_px(i);
    const double y = h1_py(i) + h2_py(i) + h3_py(i);
    const double z = h1_pz(i) + h2_pz(i) + h3_pz(i);
    const double e =
        std::sqrt(h1_px(i) * h1_px(i) + h1_py(i) * h1_py(i) + h1_pz(i) * h1_pz(i) + kaon2) +
        std::sqrt(h2_px(i) * h2_px(i) + h2_py(i) * h2_py(i) + h2_pz(i) * h2_pz(i) + kaon2) +
        std::sqrt(h3_px(i) * h3_px(i) + h3_py(i) * h3_py(i) + h3_pz(i) * h3_pz(i) + kaon2);
    mass.Fill(std::sqrt(e * e - x * x - y * y - z * z));
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf("%.6f %ld\n", took.count(), passed);
  std::fflush(stdout);
}
