//! A session with an origin and a resolver, and programs that talk to it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use egress::{Bundle, Gateway, GatewayConfig, Maxima, Resolver, Rule, Session, Upstream};
use engine::Caller;
use engine::access::{AccessCall, ReachLog, Secrets};
use harness::TestFolder;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::servers::{Answering, Names, Origin};

const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";

pub(crate) struct Stage {
    pub(crate) origin: Origin,
    pub(crate) names: Names,
    pub(crate) session: Arc<Session>,
    _folder: TestFolder,
}

/// Every name is the origin.
pub(crate) fn loopback(_: &str, _: usize) -> Vec<std::net::IpAddr> {
    vec!["127.0.0.1".parse().unwrap()]
}

impl Stage {
    /// A session with these rules; `PORT` in them is the port of the origin.
    pub(crate) async fn new(rules: &[&str]) -> Self {
        Self::with(rules, loopback, Maxima::default()).await
    }

    pub(crate) async fn with(rules: &[&str], answer: Answering, maxima: Maxima) -> Self {
        let (origin, names) = (Origin::start(ANSWER).await, Names::start(answer).await);
        Self::over(rules, origin, names, maxima, None)
    }

    pub(crate) fn over(
        rules: &[&str],
        origin: Origin,
        names: Names,
        maxima: Maxima,
        upstream: Option<Upstream>,
    ) -> Self {
        let port = origin.port.to_string();
        let rules = rules.iter().map(|rule| rule.replace("PORT", &port).parse::<Rule>().unwrap()).collect();
        let bundle = Bundle { rules, maxima, ..Bundle::default() };
        let folder = TestFolder::new();
        let gateway = Gateway::new(GatewayConfig {
            bundles: BTreeMap::from([("web".to_owned(), bundle)]),
            resolver: Resolver::Dns(names.address),
            upstream,
            secrets: Secrets::new(folder.path()),
            log: Arc::new(ReachLog::new(folder.path())),
        });
        let (caller, names_asked) = (Caller::local(), ["web".to_owned()]);
        let call = AccessCall {
            caller: &caller,
            run_id: None,
            sandbox: None,
            names: &names_asked,
            calls_tools: false,
        };
        let session = gateway.session(&call);
        Self { origin, names, session, _folder: folder }
    }

    /// A connection of a program.
    pub(crate) fn connect(&self) -> DuplexStream {
        let (program, link) = tokio::io::duplex(1 << 16);
        let session = Arc::clone(&self.session);
        tokio::spawn(async move { session.serve_stream(link).await });
        program
    }

    /// Sends bytes, and returns everything that comes back.
    pub(crate) async fn talk(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut program = self.connect();
        let text = String::from_utf8_lossy(bytes.as_ref()).replace("PORT", &self.origin.port.to_string());
        let bytes = if std::str::from_utf8(bytes.as_ref()).is_ok() {
            text.into_bytes()
        } else {
            bytes.as_ref().to_vec()
        };
        // A gate that refuses early may not take everything.
        program.write_all(&bytes).await.ok();
        finish(program).await
    }

    /// Opens a tunnel to that place, sends bytes in it, and returns what came back in it.
    pub(crate) async fn tunnel(&self, place: &str, bytes: &[u8]) -> Vec<u8> {
        let mut program = self.open(place).await;
        program.write_all(bytes).await.ok();
        program.shutdown().await.ok();
        let mut all = Vec::new();
        tokio::time::timeout(PATIENCE, program.read_to_end(&mut all)).await.unwrap().unwrap();
        all
    }

    /// An open tunnel.
    pub(crate) async fn open(&self, place: &str) -> DuplexStream {
        let mut program = self.connect();
        let place = place.replace("PORT", &self.origin.port.to_string());
        program.write_all(format!("CONNECT {place} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
        let mut head = vec![0; b"HTTP/1.1 200 Connection established\r\n\r\n".len()];
        tokio::time::timeout(PATIENCE, program.read_exact(&mut head)).await.unwrap().unwrap();
        assert!(head.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&head));
        program
    }

    /// The verdicts so far, without their hosts.
    pub(crate) fn verdicts(&self) -> Vec<String> {
        self.session.reached().into_iter().map(|reached| reached.verdict).collect()
    }

    /// Waits for a verdict: a connection is counted when its task has ended.
    pub(crate) async fn verdict(&self, wanted: &str) {
        for _ in 0..600 {
            if self.verdicts().iter().any(|verdict| verdict == wanted) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{wanted} is not among {:?}", self.session.reached());
    }

    /// Sends a request that must be refused before anything is dialled or looked up.
    pub(crate) async fn is_refused(&self, request: &str, code: &str) {
        let answer = self.talk(request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 403 Palisade: {code}\r\n")), "{request:?}: {answer}");
        assert!(answer.contains("\"remedy\":\""), "{answer}");
        assert!(self.origin.received().is_empty(), "{request:?}: {:?}", self.origin.received());
        assert!(self.verdicts().iter().any(|verdict| verdict == code), "{:?}", self.verdicts());
    }
}

pub(crate) async fn finish(mut program: DuplexStream) -> String {
    let mut all = Vec::new();
    tokio::time::timeout(PATIENCE, program.read_to_end(&mut all)).await.unwrap().unwrap();
    String::from_utf8_lossy(&all).into_owned()
}

/// A ClientHello that names these servers, in records of that size.
pub(crate) fn hello(servers: &[&str], record_bytes: usize) -> Vec<u8> {
    let sized = |bytes: &[u8], width: usize| {
        let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
        [&length[4 - width..], bytes].concat()
    };
    let mut extensions = vec![0x00, 0x2b, 0, 3, 2, 3, 4];
    if !servers.is_empty() {
        let list: Vec<u8> =
            servers.iter().flat_map(|name| [vec![0], sized(name.as_bytes(), 2)].concat()).collect();
        extensions.extend([vec![0, 0], sized(&sized(&list, 2), 2)].concat());
    }
    let body = [&[3, 3][..], &[7; 32], &[0], &[0, 2, 0x13, 1], &[1, 0], &sized(&extensions, 2)].concat();
    let message = [vec![1], sized(&body, 3)].concat();
    message.chunks(record_bytes).flat_map(|part| [vec![22, 3, 1], sized(part, 2)].concat()).collect()
}
