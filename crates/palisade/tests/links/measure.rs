//! Measures links: bytes a second in each direction on one link, and the latency of a connection with one echo.
//!
//! Called with `PALISADE_LINKS_OUT=FILE` in an optimised build. Every sample is kept in the file.

use std::fmt::Write;
use std::path::Path;

use engine::links::{Link, LinkCall, ListenAt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::stage::{PORT, Stage, at, echo, program, run, told, tools};

const ROUNDS: usize = 12;
const BYTES: usize = 512 << 20;

/// Connects to the socket or to the port.
fn connect_to(kind: &str) -> String {
    match kind {
        "unix" => "connect()".to_owned(),
        _ => format!("socket.create_connection(('127.0.0.1', {PORT}))"),
    }
}

/// The samples of one program that prints numbers.
async fn sampled(stage: &Stage, kind: &str, code: &str) -> Vec<f64> {
    let code = code.replace("CONNECT", &connect_to(kind)).replace("BYTES", &BYTES.to_string());
    let serve = |mut link: Link, call: LinkCall| async move {
        let mut kind = [0];
        link.read_exact(&mut kind).await?;
        match &kind {
            b"e" => echo(link, call).await,
            b"r" => {
                let piece = vec![7; 1 << 16];
                for _ in 0..BYTES >> 16 {
                    link.write_all(&piece).await?;
                }
                Ok(())
            }
            _ => {
                let (mut piece, mut left) = (vec![0; 1 << 16], BYTES);
                while left > 0 {
                    left -= link.read(&mut piece).await?.max(1).min(left);
                }
                link.write_all(b"k").await
            }
        }
    };
    let mut grants = tools(serve);
    grants.push(at(ListenAt::Loopback(PORT), serve));
    let stdout = told(&run(&stage.engine, program(&code, grants)).await);
    stdout.split_ascii_whitespace().map(|number| number.parse().unwrap()).collect()
}

const SEND: &str = r#"
c = CONNECT; c.sendall(b"s"); data = memoryview(bytes(1 << 20)); began = time.perf_counter()
for _ in range(BYTES >> 20): c.sendall(data)
c.recv(1)
print(BYTES / (time.perf_counter() - began) / 1e6)
"#;
const RECEIVE: &str = r#"
c = CONNECT; buffer = bytearray(1 << 18); left = BYTES; began = time.perf_counter(); c.sendall(b"r")
while left > 0: left -= c.recv_into(buffer)
print(BYTES / (time.perf_counter() - began) / 1e6)
"#;
const CONNECT_ECHO: &str = r#"
for _ in range(1000):
    began = time.perf_counter()
    c = CONNECT; c.sendall(b"ex"); c.recv(1)
    print((time.perf_counter() - began) * 1e6)
    c.close()
"#;
const ECHO: &str = r#"
c = CONNECT; c.sendall(b"e")
for _ in range(2000):
    began = time.perf_counter()
    c.sendall(b"x"); c.recv(1)
    print((time.perf_counter() - began) * 1e6)
"#;

pub(crate) async fn measure(stage: &Stage, path: &Path) {
    let mut report = String::from("{\n");
    let programs = [
        ("program_to_broker_mb_per_s", SEND, ROUNDS),
        ("broker_to_program_mb_per_s", RECEIVE, ROUNDS),
        ("connect_and_echo_us", CONNECT_ECHO, 1),
        ("echo_us", ECHO, 1),
    ];
    for kind in ["unix", "tcp"] {
        for (name, code, rounds) in programs {
            let mut samples = Vec::new();
            for _ in 0..rounds {
                samples.extend(sampled(stage, kind, code).await);
            }
            let mut ordered = samples.clone();
            ordered.sort_by(f64::total_cmp);
            let at = |share: usize| ordered[(ordered.len() - 1) * share / 100];
            println!("{kind} {name}: min {:.0} p50 {:.0} p95 {:.0}", at(0), at(50), at(95));
            writeln!(report, "  \"{kind}_{name}\": {samples:.1?},").unwrap();
        }
    }
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    writeln!(report, "  \"bytes\": {BYTES}, \"build\": \"{build}\"\n}}").unwrap();
    std::fs::write(path, report).unwrap();
}
