// What tables of ops say where there is none.
export const NONE =
  "No operator was recorded. Record with pyprof.init(), with torch.profiler, or under emit_nvtx: then every kernel has one.";
