//! The sandbox's share of the processors, as the libraries of a program learn of it.
//!
//! Many libraries start a thread per core of the machine, whatever the sandbox may use. Their threads then take
//! turns, and each costs memory and a process of the limit. Every one of them reads a variable of its own when
//! it is loaded. The environment with which an interpreter or program starts therefore has all of them. It is
//! part of a spare and of a zygote process, so a run gets only a spare that started with its share.
//!
//! `[env]` of a runtime and the variables of a caller come after these and win. The affinity of processes is
//! never changed: which processor is free is the kernel's decision.

use sandbox::Limits;

/// What libraries read. `UV_THREADPOOL_SIZE` is absent: those threads wait for files and names, and do not
/// compute.
const NAMES: [&str; 13] = [
    // OpenMP, and the libraries of linear algebra below NumPy and R.
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",
    "TOKIO_WORKER_THREADS",
    "GOMAXPROCS",
    // `os.cpu_count()` of Python 3.13 and later.
    "PYTHON_CPU_COUNT",
    "DOTNET_PROCESSOR_COUNT",
];

/// How many processors a sandbox may use at once, rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CpuShare(u32);

impl CpuShare {
    /// One processor.
    pub(crate) const ONE: Self = Self(1);

    pub(crate) fn of(limits: &Limits) -> Self {
        Self(limits.cpus_milli.div_ceil(1000).max(1))
    }

    pub(crate) fn variables(self) -> impl Iterator<Item = (String, String)> {
        NAMES.iter().map(move |name| ((*name).to_owned(), self.to_string()))
    }
}

impl std::fmt::Display for CpuShare {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_rounded_up_and_never_nothing() {
        for (cpus_milli, share) in
            [(0, "1"), (100, "1"), (1000, "1"), (1001, "2"), (2500, "3"), (64_000, "64")]
        {
            let share_of = CpuShare::of(&Limits { cpus_milli, ..Limits::default() });
            assert_eq!(share_of.to_string(), share);
        }
    }
}
