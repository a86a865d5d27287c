//! Brokers that close, hang or fail, and links that are open when a run ends.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::Mutex;

use engine::links::{Link, LinkCall, ListenAt};
use policy::Ask;
use sandbox::Outcome;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::stage::{PORT, Stage, at, echo, idle, program, run, tools};

pub(crate) async fn a_broker_that_closes_gives_its_last_bytes_and_an_end(stage: &Stage) {
    // The program is still sending when the broker closes: it must get all bytes, and no reset.
    let close = |mut link: Link, _: LinkCall| async move {
        link.read_exact(&mut [0; 4]).await?;
        link.write_all(&[9; 300_000]).await
    };
    let code = format!(
        r#"
unix, tcp = connect(), socket.create_connection(("127.0.0.1", {PORT}))
for c in (unix, tcp):
    c.sendall(b"more than four bytes")
    time.sleep(0.1)
    print(len(read_all(c)))
try:
    for _ in range(100): unix.sendall(b"x" * 4096)
except BrokenPipeError: print("closed")
"#
    );
    let mut grants = tools(close);
    grants.push(at(ListenAt::Loopback(PORT), close));
    assert_eq!(stage.python(&code, grants).await, "300000\n300000\nclosed");
}

pub(crate) async fn a_broker_that_never_reads_blocks_the_program_alone(stage: &Stage) {
    let code = r#"
c = connect(); c.setblocking(False); sent = 0; quiet = 0
while quiet < 20:
    try: sent += c.send(b"x" * 65536); quiet = 0
    except BlockingIOError: quiet += 1; time.sleep(0.02)
print((256 << 10) <= sent <= (2 << 20))
"#;
    assert_eq!(stage.python(code, tools(idle)).await, "True");
}

pub(crate) async fn a_broker_that_panics_closes_one_link(stage: &Stage) {
    let panics = |mut link: Link, call: LinkCall| async move {
        let mut first = [0];
        link.read_exact(&mut first).await?;
        assert_ne!(first, *b"p", "a panic that a test wants");
        echo(link, call).await
    };
    let code = r#"
a, b = connect(), connect()
a.sendall(b"p"); print(read_all(a))
b.sendall(b"xyz"); print(read_exactly(b, 2))
"#;
    assert_eq!(stage.python(code, tools(panics)).await, "b''\nb'yz'");
}

/// How links ended: `None` if the program closed it.
type Ends = Arc<Mutex<Vec<Option<ErrorKind>>>>;

/// A broker that notes how its links ended.
fn notes() -> (Ends, Vec<engine::links::Grant>) {
    let ends = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&ends);
    let grants = tools(move |mut link: Link, _: LinkCall| {
        let kept = Arc::clone(&kept);
        async move {
            link.read_exact(&mut [0]).await?;
            link.write_all(b"x").await?;
            let ended = link.read_to_end(&mut Vec::new()).await;
            kept.lock().unwrap().push(ended.as_ref().err().map(std::io::Error::kind));
            ended.map(drop)
        }
    });
    (ends, grants)
}

pub(crate) async fn open_links_end_with_the_run(stage: &Stage) {
    let (ends, grants) = notes();
    let code = r#"
ready, tell = os.pipe()
child = os.fork()
c = connect(); c.sendall(b"x")
if child == 0:
    assert c.recv(1) == b"x"
    os.write(tell, b"x"); time.sleep(60)
assert c.recv(1) == b"x" and os.read(ready, 1) == b"x"
print("over")
"#;
    assert_eq!(stage.python(code, grants).await, "over");
    // The program's own link may be closed already; that of its child is open.
    let ends = ends.lock().unwrap();
    assert!(ends.len() == 2 && ends.contains(&Some(ErrorKind::ConnectionAborted)), "{ends:?}");
}

pub(crate) async fn open_links_end_at_the_clock(stage: &Stage) {
    let (ends, grants) = notes();
    let mut request = program("c = connect(); c.sendall(b'x'); c.recv(1); c.recv(1)", grants);
    request.ask = Ask { timeout_ms: Some(700), ..request.ask };
    assert_eq!(run(&stage.engine, request).await.outcome, Outcome::TimedOut);
    assert_eq!(*ends.lock().unwrap(), [Some(ErrorKind::ConnectionAborted)]);
}
