//! The body of a plain request: exactly as long as its head says, and nothing behind it.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::budget::Way;
use crate::head::Body;
use crate::tunnel::Meter;

/// The longest line with the size of a chunk: 15 digits and CR LF.
const SIZE_LINE_BYTES_MAX: u64 = 17;
const PIECE_BYTES: usize = 16 << 10;
const CHUNK_END: &[u8; 2] = b"\r\n";

/// Sends a body to the origin. Chunks are written anew. The connection stays open for the answer.
pub(crate) async fn send_body(
    meter: &Meter<'_>,
    body: Body,
    mut from: impl AsyncBufRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    match body {
        Body::Length(length) => send_bytes(meter, length, &mut from, &mut to).await,
        Body::Chunked => loop {
            let size = read_size(&mut from).await?;
            let line = format!("{size:x}\r\n");
            // Many small chunks are mostly frame: it leaves as well, and counts.
            meter.pass(Way::Out, line.len() + CHUNK_END.len())?;
            to.write_all(line.as_bytes()).await?;
            send_bytes(meter, size, &mut from, &mut to).await?;
            let mut end = [0; 2];
            from.read_exact(&mut end).await?;
            // Behind the last chunk this refuses trailers, too.
            if end != *CHUNK_END {
                return Err(io::ErrorKind::InvalidData.into());
            }
            to.write_all(CHUNK_END).await?;
            if size == 0 {
                return Ok(());
            }
        },
    }
}

/// The size of the next chunk: hexadecimal digits without an extension.
async fn read_size(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<u64> {
    let mut line = Vec::new();
    from.take(SIZE_LINE_BYTES_MAX).read_until(b'\n', &mut line).await?;
    let digits = line.strip_suffix(b"\r\n").and_then(|digits| std::str::from_utf8(digits).ok());
    let digits =
        digits.filter(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let size = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    size.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

async fn send_bytes(
    meter: &Meter<'_>,
    length: u64,
    from: &mut (impl AsyncBufRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    let (mut left, mut buffer) = (length, vec![0; PIECE_BYTES]);
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        let count = from.read(&mut buffer[..most]).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        meter.pass(Way::Out, count)?;
        to.write_all(&buffer[..count]).await?;
        left -= count as u64;
    }
    Ok(())
}
