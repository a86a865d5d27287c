//! Pseudo-random numbers that are the same in every run, for seeded tests.

/// A source of pseudo-random numbers (xorshift64).
pub struct Chance(u64);

impl Chance {
    /// From a seed above zero.
    pub fn new(seed: u64) -> Self {
        Self(seed.max(1))
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.any() % bound.max(1) as u64).unwrap()
    }

    /// At most `most` bytes.
    pub fn bytes(&mut self, most: usize) -> Vec<u8> {
        let length = self.below(most + 1);
        (0..length).map(|_| self.any().to_le_bytes()[3]).collect()
    }

    /// Up to `count` of these parts joined, some by a slash: the paths of a caller that tries to leave a
    /// folder.
    pub fn joined(&mut self, parts: &[&str], count: usize) -> String {
        let mut text = String::new();
        for _ in 0..count {
            let number = self.any();
            text.push_str(parts[usize::try_from(number % parts.len() as u64).unwrap()]);
            if number & 0x100 != 0 {
                text.push('/');
            }
        }
        text
    }
}

/// Whether long loops should be short (`PALISADE_QUICK=1`).
pub fn is_quick() -> bool {
    std::env::var_os("PALISADE_QUICK").is_some_and(|value| value == "1")
}
