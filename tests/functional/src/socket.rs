//! WebSocket frames by hand (RFC 6455 section 5), for what no library would send.

use std::io;

use serde_json::Value;

use crate::http::{Request, Server, Wire};

/// Kinds of frames.
pub const TEXT: u8 = 1;
/// The other end asks whether we are there.
pub const PING: u8 = 9;
/// The other end leaves.
pub const CLOSE: u8 = 8;
/// Answer to a ping.
pub const PONG: u8 = 10;
const FINAL: u8 = 0x80;
const MASKED: u8 = 0x80;
/// Any mask will do: it protects proxies from pages, not us.
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// An open WebSocket.
pub struct Socket {
    wire: Wire,
}

/// The request that asks for one.
pub fn upgrade() -> Request {
    Request::get("/mcp/ws")
        .header("Connection", "Upgrade")
        .header("Upgrade", "websocket")
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
}

impl Socket {
    /// Opens one with the server's token.
    pub fn open(server: &Server) -> Self {
        Self::ask(server, &upgrade())
    }

    /// Opens one with that request.
    pub fn ask(server: &Server, request: &Request) -> Self {
        let mut wire = server.connect();
        wire.send(&request.bytes(server));
        let answer = wire.answer();
        assert_eq!(answer.status, 101, "{answer:?}");
        Self { wire }
    }

    /// A whole frame.
    pub fn send(&mut self, kind: u8, payload: &[u8]) -> io::Result<()> {
        let mut frame = head(kind, payload.len());
        frame.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        self.wire.try_send(&frame)
    }

    /// Only the head of a frame: it says how much will come.
    pub fn announce(&mut self, kind: u8, length: usize) {
        self.wire.send(&head(kind, length));
    }

    /// The next frame; pings are let pass.
    pub fn receive(&mut self) -> io::Result<(u8, Vec<u8>)> {
        loop {
            let start = self.wire.take(2)?;
            let length = match start[1] & !MASKED {
                126 => usize::from(u16::from_be_bytes(self.wire.take(2)?.try_into().unwrap())),
                127 => usize::try_from(u64::from_be_bytes(self.wire.take(8)?.try_into().unwrap())).unwrap(),
                short => usize::from(short),
            };
            let payload = self.wire.take(length)?;
            if start[0] & 0x0f != PING {
                return Ok((start[0] & 0x0f, payload));
            }
        }
    }

    /// The next message.
    pub fn message(&mut self) -> Value {
        let (kind, payload) = self.receive().unwrap();
        assert_eq!(kind, TEXT, "{}", String::from_utf8_lossy(&payload));
        serde_json::from_slice(&payload).unwrap()
    }

    /// Whether the server ends the connection, with a word or without.
    pub fn is_ended(&mut self) -> bool {
        match self.receive() {
            Ok((kind, _)) => kind == CLOSE,
            Err(error) => !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
        }
    }
}

fn head(kind: u8, length: usize) -> Vec<u8> {
    let mut frame = vec![FINAL | kind];
    if let Ok(short) = u8::try_from(length)
        && short < 126
    {
        frame.push(MASKED | short);
    } else if let Ok(middle) = u16::try_from(length) {
        frame.push(MASKED | 126);
        frame.extend(middle.to_be_bytes());
    } else {
        frame.push(MASKED | 127);
        frame.extend((length as u64).to_be_bytes());
    }
    frame.extend(MASK);
    frame
}
