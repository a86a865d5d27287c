//! How property tests run: few cases, the same in every run, and no files written beside the sources.

use proptest::test_runner::{Config, RngSeed};

const CASES: u32 = 64;
const SEED: u64 = 0x5eed;

/// For `#![proptest_config(harness::properties())]`. `PROPTEST_CASES` asks for more cases.
pub fn properties() -> Config {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|number| number.parse().ok());
    Config {
        cases: asked.unwrap_or(CASES),
        rng_seed: RngSeed::Fixed(SEED),
        failure_persistence: None,
        ..Config::default()
    }
}
