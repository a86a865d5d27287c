//! Properties of decisions, over arbitrary requests and arbitrary policies.

use proptest::option;
use proptest::prelude::*;

use super::*;

fn judged(policy: &Policy, floor: Floor, ask: &Ask) -> Verdict {
    let action = Action::Run { language: "python", floor, ask };
    judge(policy, &Call { caller: &Caller::local(), action })
}

/// Maxima that an operator can set: whole units, and at least the smallest values that a run can be given.
fn maxima() -> impl Strategy<Value = Limits> {
    let times = (1..10_000_000_u64, 16..1_000_000_u64, 100..256_000_u32);
    let counts = (1..100_000_u32, 1..1_000_000_u64, 1024..10_000_000_u64, 32..100_000_u32, 1..1_000_000_u64);
    (times, counts).prop_map(|((wall_ms, memory_mb, cpus_milli), counts)| Limits {
        wall_ms,
        memory_bytes: memory_mb * MB,
        cpus_milli,
        processes: counts.0,
        disk_bytes: counts.1 * MB,
        disk_inodes: counts.2,
        open_files: counts.3,
        output_bytes: counts.4 * KB,
    })
}

/// Defaults may exceed the maxima, and a runtime may need more than the maxima allow.
fn policies() -> impl Strategy<Value = Policy> {
    (maxima(), maxima()).prop_map(|(defaults, maxima)| Policy {
        defaults,
        maxima,
        absence_allowed: Vec::new(),
        least_kernel: sandbox::Kernel::Shared,
    })
}

fn floors() -> impl Strategy<Value = Floor> {
    (0..10_000_u64, 0..10_000_u64, 0..10_000_u64).prop_map(|(memory_mb, processes, open_files)| Floor {
        memory_mb,
        processes,
        open_files,
    })
}

fn asks() -> impl Strategy<Value = Ask> {
    let number = || option::of(prop_oneof![any::<u64>(), 0..100_000_u64, 0..100_u64]);
    let cpus = option::of(prop_oneof![any::<f64>(), -1.0..300.0_f64]);
    (number(), number(), cpus, number(), number(), number(), number()).prop_map(
        |(timeout_ms, memory_mb, cpus, processes, disk_mb, open_files, output_kb)| Ask {
            timeout_ms,
            memory_mb,
            cpus,
            processes,
            disk_mb,
            open_files,
            output_kb,
        },
    )
}

fn amounts(limits: &Limits) -> [u64; 8] {
    [
        limits.wall_ms,
        limits.memory_bytes,
        u64::from(limits.cpus_milli),
        u64::from(limits.processes),
        limits.disk_bytes,
        limits.disk_inodes,
        u64::from(limits.open_files),
        limits.output_bytes,
    ]
}

proptest! {
    #![proptest_config(harness::properties())]

    #[test]
    fn no_wish_gets_more_than_the_maximum_or_nothing(policy in policies(), floor in floors(), ask in asks()) {
        let Verdict::Proceed(allowed) = judged(&policy, floor, &ask) else { return Ok(()) };
        for (given, most) in amounts(&allowed.limits).into_iter().zip(amounts(&policy.maxima)) {
            prop_assert!(given <= most && given > 0, "{given} of at most {most}: {:?}", allowed.limits);
        }
    }

    #[test]
    fn every_change_of_a_wish_is_told(policy in policies(), floor in floors(), ask in asks()) {
        let Verdict::Proceed(allowed) = judged(&policy, floor, &ask) else { return Ok(()) };
        let told = |name: &str| allowed.clamped.iter().any(|clamp| clamp.limit == name);
        prop_assert_eq!(ask.timeout_ms.is_some_and(|asked| asked != allowed.limits.wall_ms), told("timeout_ms"));
        let memory_mb = allowed.limits.memory_bytes / MB;
        prop_assert_eq!(ask.memory_mb.is_some_and(|asked| asked != memory_mb), told("memory_mb"));
        let processes = u64::from(allowed.limits.processes);
        prop_assert_eq!(ask.processes.is_some_and(|asked| asked != processes), told("processes"));
    }

    #[test]
    fn only_what_is_no_amount_is_refused(policy in policies(), floor in floors(), ask in asks()) {
        let whole = [ask.timeout_ms, ask.memory_mb, ask.processes, ask.disk_mb, ask.open_files, ask.output_kb];
        let is_amount = |cpus: f64| cpus.is_finite() && cpus > 0.0;
        let is_sound = !whole.contains(&Some(0)) && ask.cpus.is_none_or(is_amount);
        prop_assert_eq!(matches!(judged(&policy, floor, &ask), Verdict::Proceed(_)), is_sound);
    }

    #[test]
    fn who_asks_for_more_never_gets_less(policy in policies(), floor in floors(), two in (0..2_000_000_u64, 0..2_000_000_u64)) {
        let memory = |asked: u64| {
            let ask = Ask { memory_mb: Some(asked.max(1)), ..Ask::default() };
            match judged(&policy, floor, &ask) {
                Verdict::Proceed(allowed) => allowed.limits.memory_bytes,
                Verdict::Deny(_) => 0,
            }
        };
        prop_assert!(memory(two.0.min(two.1)) <= memory(two.0.max(two.1)));
    }
}
