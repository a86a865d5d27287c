//! The origin and the resolver of the tests.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};

/// A server that keeps what it receives, and answers each connection with the same bytes.
pub(crate) struct Origin {
    pub(crate) port: u16,
    received: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Origin {
    /// Answers after the first bytes, and closes the connection when the client has ended.
    pub(crate) async fn start(answer: &'static [u8]) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let received: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
        let kept = Arc::clone(&received);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let kept = Arc::clone(&kept);
                let number = {
                    let mut all = kept.lock().unwrap();
                    all.push(Vec::new());
                    all.len() - 1
                };
                tokio::spawn(async move {
                    let (mut buffer, mut has_answered) = (vec![0; 1 << 16], false);
                    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                        kept.lock().unwrap()[number].extend_from_slice(&buffer[..count]);
                        if !has_answered && stream.write_all(answer).await.is_err() {
                            break;
                        }
                        has_answered = true;
                        // An HTTP origin that was told to close does so.
                        if answer.starts_with(b"HTTP/") && is_whole(&kept.lock().unwrap()[number]) {
                            break;
                        }
                    }
                });
            }
        });
        Self { port, received }
    }

    /// The bytes of each connection so far.
    pub(crate) fn received(&self) -> Vec<String> {
        let all = self.received.lock().unwrap();
        all.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
    }
}

/// Whether a request without a body, or with a body of its stated length, is complete.
fn is_whole(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    match length.and_then(|length| length.parse::<usize>().ok()) {
        Some(length) => body.len() >= length,
        None => !head.contains("chunked") || body.ends_with("0\r\n\r\n"),
    }
}

/// A resolver that answers by a function of the name and of how often it was asked, and keeps every question.
pub(crate) struct Names {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

pub(crate) type Answering = fn(&str, usize) -> Vec<IpAddr>;

/// What a resolver sends over TCP instead of its honest reply, which it is given with the two bytes of its length.
pub(crate) type Lying = fn(Vec<u8>) -> Vec<u8>;

impl Names {
    pub(crate) async fn start(answer: Answering) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        Self::serve(socket, answer, 0x81)
    }

    /// A resolver whose replies do not fit a packet. Over TCP it sends what `lie` makes of the reply, and then keeps the
    /// connection open.
    pub(crate) async fn truncating(answer: Answering, lie: Lying) -> Self {
        let (socket, listener) = loop {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            // Another program may have the same port for packets.
            if let Ok(socket) = UdpSocket::bind(listener.local_addr().unwrap()).await {
                break (socket, listener);
            }
        };
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let length = stream.read_u16().await.unwrap();
                    let mut asked = vec![0; usize::from(length)];
                    stream.read_exact(&mut asked).await.unwrap();
                    let (name, kind, end) = question(&asked);
                    let honest = reply(&asked[..end], kind, answer(&name, 0), 0x81);
                    let length = u16::try_from(honest.len()).unwrap().to_be_bytes();
                    stream.write_all(&lie([&length[..], &honest].concat())).await.ok();
                    stream.read_to_end(&mut Vec::new()).await.ok();
                });
            }
        });
        Self::serve(socket, answer, 0x83)
    }

    fn serve(socket: UdpSocket, answer: Answering, flags: u8) -> Self {
        let address = socket.local_addr().unwrap();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = Arc::clone(&asked);
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            while let Ok((count, from)) = socket.recv_from(&mut buffer).await {
                let (name, kind, end) = question(&buffer[..count]);
                let times = kept.lock().unwrap().iter().filter(|known| **known == name).count();
                let reply = reply(&buffer[..end], kind, answer(&name, times), flags);
                if kind == 1 {
                    kept.lock().unwrap().push(name);
                }
                // A forged answer with another number comes first, and is ignored.
                let mut forged = reply.clone();
                forged[0] ^= 0xff;
                socket.send_to(&forged, from).await.unwrap();
                socket.send_to(&reply, from).await.unwrap();
            }
        });
        Self { address, asked }
    }

    /// The names that were asked for their IPv4 address.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// The reply to a question with these addresses. The first byte of its flags tells whether it is whole.
fn reply(question: &[u8], kind: u16, addresses: Vec<IpAddr>, flags: u8) -> Vec<u8> {
    let records: Vec<Vec<u8>> = addresses.into_iter().filter_map(|to| record(kind, to)).collect();
    let mut reply = question.to_vec();
    reply[2..4].copy_from_slice(&[flags, 0x80]);
    reply[6..8].copy_from_slice(&u16::try_from(records.len()).unwrap().to_be_bytes());
    [reply, records.concat()].concat()
}

fn question(bytes: &[u8]) -> (String, u16, usize) {
    let (mut labels, mut at) = (Vec::new(), 12);
    while bytes[at] != 0 {
        let end = at + 1 + usize::from(bytes[at]);
        labels.push(String::from_utf8_lossy(&bytes[at + 1..end]).into_owned());
        at = end;
    }
    (labels.join("."), u16::from_be_bytes([bytes[at + 1], bytes[at + 2]]), at + 5)
}

fn record(kind: u16, address: IpAddr) -> Option<Vec<u8>> {
    let data = match (kind, address) {
        (1, IpAddr::V4(address)) => address.octets().to_vec(),
        (28, IpAddr::V6(address)) => address.octets().to_vec(),
        _ => return None,
    };
    let length = u16::try_from(data.len()).unwrap();
    Some([&[0xc0, 12][..], &kind.to_be_bytes(), &[0, 1, 0, 0, 0, 0], &length.to_be_bytes(), &data].concat())
}
