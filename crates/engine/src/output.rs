//! The output of a run, up to the output limit. A `Conversation` fills it; `conclusion` moves it into the
//! result.

use wire::Stream;

/// Both streams under one limit.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    bytes_max: usize,
    /// Whether the program wrote more than the limit.
    pub(crate) overflowed: bool,
}

impl Output {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self { bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX), ..Self::default() }
    }

    /// Keeps the bytes that fit and returns them.
    pub(crate) fn keep<'a>(&mut self, stream: Stream, data: &'a [u8]) -> &'a [u8] {
        let room = self.bytes_max - (self.stdout.len() + self.stderr.len());
        let fits = &data[..data.len().min(room)];
        self.overflowed |= fits.len() < data.len();
        match stream {
            Stream::Stdout => self.stdout.extend_from_slice(fits),
            Stream::Stderr => self.stderr.extend_from_slice(fits),
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_budget_is_shared_and_overflow_is_noticed() {
        let mut output = Output::new(5);
        assert_eq!(output.keep(Stream::Stdout, b"abc"), b"abc");
        assert!(!output.overflowed);
        assert_eq!(output.keep(Stream::Stderr, b"defg"), b"de");
        assert!(output.overflowed);
        assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"abc"[..], &b"de"[..]));
    }

    proptest! {
        #![proptest_config(harness::properties())]

        #[test]
        fn the_beginning_of_each_stream_is_kept_and_never_more_than_the_budget(
            budget in 0..200_u64,
            pieces in vec((any::<bool>(), vec(any::<u8>(), 0..60)), 0..12),
        ) {
            let mut output = Output::new(budget);
            let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
            for (is_stderr, data) in &pieces {
                let (stream, whole) =
                    if *is_stderr { (Stream::Stderr, &mut stderr) } else { (Stream::Stdout, &mut stdout) };
                whole.extend_from_slice(data);
                let kept = output.keep(stream, data);
                prop_assert!(data.starts_with(kept));
            }
            let kept_bytes = output.stdout.len() + output.stderr.len();
            prop_assert!(stdout.starts_with(&output.stdout) && stderr.starts_with(&output.stderr));
            prop_assert_eq!(kept_bytes, (stdout.len() + stderr.len()).min(budget as usize));
            prop_assert_eq!(output.overflowed, stdout.len() + stderr.len() > budget as usize);
        }
    }
}
