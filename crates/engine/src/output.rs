//! What a run wrote, up to what is kept.

use wire::Stream;

/// Both streams under one budget.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    bytes_max: usize,
    /// More came than is kept.
    pub(crate) overflowed: bool,
}

impl Output {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self { bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX), ..Self::default() }
    }

    /// Keeps what fits and gives back that part.
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
}
