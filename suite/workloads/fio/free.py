"""Options of fio that a user may say: of a job file, and beside the workload's own.

A list of what is allowed, made from `fio --cmdhelp` of 3.33 and the manual of 3.36: no option
in it names a file, a program or a device (buffer_pattern may: a name in quotes).
"""

from __future__ import annotations

_FREE = """
allrandrepeat ba blockalign blocksize_range blocksize_unaligned bs_is_seq_rand bs_unaligned
bsrange buffer_compress_chunk clocksource cmdprio cmdprio_bssplit cmdprio_class
cmdprio_percentage continue_on_error cpumask cpus_allowed cpus_allowed_policy create_fsync
create_on_open create_serialize dedupe_global dedupe_mode dedupe_percentage
dedupe_working_set_percentage description disk_util error_dump exit_what exitall
exitall_on_error fadvise_hint file_service_type fixedbufs flow flow_id flow_sleep force_async
fsync_on_close gtod_cpu hipri hipri_percentage ignore_error io_submit_mode iodepth_batch
iodepth_batch_complete iodepth_batch_complete_max iodepth_batch_complete_min
iodepth_batch_submit iodepth_low latency_percentile latency_run latency_target latency_window
lockfile lockmem max_latency nice nonvectored nowait numa_cpu_nodes numa_mem_policy offset
offset_align offset_increment openfiles percentage_random percentile_list pre_read prio
prioclass random_distribution randseed rate_cycle rate_ignore_thinktime rate_iops_min rate_min
rate_process registerfiles rw_sequencer rwmixcycle rwmixwrite scramble_buffers
serialize_overlap significant_figures slat_percentiles softrandommap sqthread_poll
sqthread_poll_cpu ss ss_dur ss_ramp steadystate steadystate_duration steadystate_ramp_time sync
sync_file_range thinktime thinktime_blocks thinktime_blocks_type thinktime_iotime
thinktime_spin uncached unique_filename unit_base userspace_reap write_barrier write_hint
zero_buffers
"""
_OF_JOBS = """
blocksize bs bssplit buffer_compress_percentage direct end_fsync fallocate fdatasync fsync
iodepth ioengine norandommap nr_files nrfiles numjobs ramp_time random_generator randrepeat
rate rate_iops readwrite refill_buffers runtime rw rwmixread size thread time_based timeout
"""
FREE = frozenset(_FREE.split())
OF_JOBS = FREE | frozenset(_OF_JOBS.split())
