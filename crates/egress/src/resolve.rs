//! Looks a name up, once for a run. The addresses are pinned: every later connection of the run to that name dials one of
//! them, whatever the resolver says meanwhile.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::{OnceCell, Semaphore};

use crate::dns::{self, ADDRESSES_MAX, Answer, Family};
use crate::host::Name;
use crate::refusal::Refusal;

/// The most names that one run may look up. A rule with a wildcard allows many.
const NAMES_MAX: usize = 256;
/// How long a look-up may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one question to a resolver waits, and how often it is asked.
const QUESTION_PATIENCE: Duration = Duration::from_secs(3);
const QUESTIONS_MAX: usize = 3;
const ANSWER_BYTES_MAX: usize = 4096;
/// How many questions to the C library are open at once, of all runs. Each holds a thread until the library answers, also
/// when its run has ended, and the server needs threads for other work.
const SYSTEM_LOOKUPS_MAX: usize = 64;
static SYSTEM_LOOKUPS: Semaphore = Semaphore::const_new(SYSTEM_LOOKUPS_MAX);

/// Who is asked about names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Resolver {
    /// The C library of this machine, as every other program here.
    #[default]
    System,
    /// This DNS server.
    Dns(SocketAddr),
}

/// The names of one run.
#[derive(Default)]
pub(crate) struct Pins(Mutex<HashMap<Name, Arc<OnceCell<Vec<IpAddr>>>>>);

impl Pins {
    /// The addresses of a name. Only the first question of a run about a name is asked. A failure is not kept.
    pub(crate) async fn addresses(&self, resolver: Resolver, name: &Name) -> Result<Vec<IpAddr>, Refusal> {
        let cell = {
            let mut pins = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if pins.len() >= NAMES_MAX && !pins.contains_key(name) {
                return Err(Refusal::TooManyNames);
            }
            Arc::clone(pins.entry(name.clone()).or_default())
        };
        let found = cell.get_or_try_init(|| async {
            let looked = tokio::time::timeout(PATIENCE, resolver.look_up(name)).await;
            let mut addresses = looked.ok().and_then(Result::ok).unwrap_or_default();
            addresses.truncate(ADDRESSES_MAX);
            if addresses.is_empty() { Err(Refusal::Unresolved) } else { Ok(addresses) }
        });
        found.await.cloned()
    }
}

impl Resolver {
    async fn look_up(self, name: &Name) -> io::Result<Vec<IpAddr>> {
        match self {
            Self::System => ask_system(name.clone()).await,
            Self::Dns(server) => {
                let (v4, v6) = tokio::join!(ask(server, name, Family::V4), ask(server, name, Family::V6));
                // One family is enough.
                match (v4, v6) {
                    (Err(error), Err(_)) => Err(error),
                    (v4, v6) => {
                        Ok(v4.unwrap_or_default().into_iter().chain(v6.unwrap_or_default()).collect())
                    }
                }
            }
        }
    }
}

/// Asks the C library. The place among the look-ups is free when the library has answered.
async fn ask_system(name: Name) -> io::Result<Vec<IpAddr>> {
    let place = SYSTEM_LOOKUPS.acquire().await.map_err(io::Error::other)?;
    let look_up = move || {
        let _place = place;
        let mut addresses: Vec<IpAddr> = Vec::new();
        for address in (name.as_str(), 0).to_socket_addrs()?.map(|found| found.ip()) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        Ok(addresses)
    };
    tokio::task::spawn_blocking(look_up).await.map_err(io::Error::other)?
}

async fn ask(server: SocketAddr, name: &Name, family: Family) -> io::Result<Vec<IpAddr>> {
    let mut failure = io::Error::from(io::ErrorKind::TimedOut);
    for _ in 0..QUESTIONS_MAX {
        match tokio::time::timeout(QUESTION_PATIENCE, ask_once(server, name, family)).await {
            Ok(Ok(addresses)) => return Ok(addresses),
            Ok(Err(error)) => failure = error,
            Err(_) => {}
        }
    }
    Err(failure)
}

async fn ask_once(server: SocketAddr, name: &Name, family: Family) -> io::Result<Vec<IpAddr>> {
    let id = random_id()?;
    let question = dns::question(id, name, family);
    // A socket of its own for each question: its port is random, and only the server's packets reach it.
    let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    socket.send(&question).await?;
    let mut buffer = [0; ANSWER_BYTES_MAX];
    loop {
        let count = socket.recv(&mut buffer).await?;
        match dns::answer(&buffer[..count], id, name, family) {
            // Not an answer to this question: perhaps forged, perhaps late.
            None => {}
            Some(Answer::Addresses(addresses)) => return Ok(addresses),
            Some(Answer::Truncated) => return ask_over_tcp(server, name, family).await,
            Some(Answer::Failed) => return Err(io::Error::other("the resolver failed")),
        }
    }
}

async fn ask_over_tcp(server: SocketAddr, name: &Name, family: Family) -> io::Result<Vec<IpAddr>> {
    let id = random_id()?;
    let question = dns::question(id, name, family);
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes()[..], &question].concat()).await?;
    let length = stream.read_u16().await?;
    let mut reply = vec![0; usize::from(length)];
    stream.read_exact(&mut reply).await?;
    match dns::answer(&reply, id, name, family) {
        Some(Answer::Addresses(addresses)) => Ok(addresses),
        _ => Err(io::Error::other("the resolver gave no answer")),
    }
}

/// A number that an attacker who does not see the question cannot guess.
fn random_id() -> io::Result<u16> {
    let mut bytes = [0; 2];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u16::from_ne_bytes(bytes))
}
