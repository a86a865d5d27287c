//! Links over the fake backend: guests that lie about them, brokers that misbehave, and what a run without grants
//! sends. The real wall is tested in `crates/palisade/tests/links`.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::links::{Broker, Grant, Link, LinkCall, ListenAt, TOOLS_SOCKET};
use engine::{AdmissionLimits, Caller, Engine, EngineConfig, PoolConfig, RunRequest, RunResult};
use policy::Policy;
use sandbox::fake::FakeBackend;
use sandbox::{BoxFuture, Outcome};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use wire::{
    CHUNK_BYTES_MAX, Exit, FailureKind, FrameBuffer, FromGuest, LINK_WINDOW_BYTES, LINKS_MAX, Stream,
    ToGuest, VERSION,
};

const MAIN: u32 = 1;
const PATIENCE: Duration = Duration::from_secs(30);

/// A broker made of a function.
struct Serve<F>(F);

impl<F, R> Broker for Serve<F>
where
    F: Fn(Link, LinkCall) -> R + Send + Sync,
    R: Future<Output = io::Result<()>> + Send + 'static,
{
    fn serve(self: Arc<Self>, link: Link, call: LinkCall) -> BoxFuture<'static, io::Result<()>> {
        Box::pin((self.0)(link, call))
    }
}

fn grant<F, R>(serve: F) -> Vec<Grant>
where
    F: Fn(Link, LinkCall) -> R + Send + Sync + 'static,
    R: Future<Output = io::Result<()>> + Send + 'static,
{
    vec![Grant { at: ListenAt::Socket(TOOLS_SOCKET.to_owned()), broker: Arc::new(Serve(serve)) }]
}

/// Sends everything back, until the program ends its direction.
async fn echo(mut link: Link, _: LinkCall) -> io::Result<()> {
    let mut bytes = vec![0; CHUNK_BYTES_MAX];
    loop {
        match link.read(&mut bytes).await? {
            0 => return link.shutdown().await,
            count => link.write_all(&bytes[..count]).await?,
        }
    }
}

/// Keeps the link and does nothing with it.
async fn idle(link: Link, _: LinkCall) -> io::Result<()> {
    std::future::pending::<()>().await;
    drop(link);
    Ok(())
}

async fn run(fake: &FakeBackend, grants: Vec<Grant>) -> RunResult {
    let config = EngineConfig {
        state_dir: std::env::temp_dir().join(format!("palisade-engine-{}", std::process::id())),
        policy: Policy::built_in(2),
        admission: AdmissionLimits { runs_max: 4, queue_max: 4, memory_bytes: 4 << 30 },
        pool: PoolConfig::off(),
    };
    let engine = Engine::new(Arc::new(fake.clone()), config);
    let request =
        RunRequest { language: "bash".to_owned(), code: "true".to_owned(), grants, ..RunRequest::default() };
    let (_stop, stopped) = oneshot::channel();
    tokio::time::timeout(PATIENCE, engine.run(&Caller::local(), request, None, stopped)).await.unwrap()
}

/// The guest's end of the wire.
struct Guest {
    stream: UnixStream,
    frames: FrameBuffer,
}

impl Guest {
    fn say(&mut self, message: &FromGuest) {
        self.stream.write_all(&wire::encode(message).unwrap()).ok();
    }

    /// The host's next message; `None` when it stops sending.
    fn hear(&mut self) -> Option<ToGuest> {
        let mut bytes = [0; 4096];
        loop {
            if let Some(message) = self.frames.next().unwrap() {
                return Some(message);
            }
            match self.stream.read(&mut bytes) {
                Ok(count @ 1..) => self.frames.extend(&bytes[..count]),
                _ => return None,
            }
        }
    }

    fn hear_about_links(&mut self) -> Option<ToGuest> {
        loop {
            let message = self.hear()?;
            let is_about_links = matches!(
                message,
                ToGuest::Link { .. }
                    | ToGuest::LinkTaken { .. }
                    | ToGuest::LinkEnd { .. }
                    | ToGuest::LinkClosed { .. }
            );
            if is_about_links {
                return Some(message);
            }
        }
    }

    fn exit(&mut self) {
        self.say(&FromGuest::Exited { process: MAIN, exit: Exit::Code(0) });
    }

    /// Opens link 0 at listener 0.
    fn open(&mut self) {
        self.say(&FromGuest::Listening { request: 0, listener: 0 });
        self.say(&FromGuest::LinkOpened { link: 0, listener: 0 });
    }
}

/// A guest that is honest until the program arrives; then `then` decides.
fn guest(then: impl Fn(&mut Guest) + Send + Sync + 'static) -> FakeBackend {
    FakeBackend::new(move |stream| {
        let mut guest = Guest { stream, frames: FrameBuffer::default() };
        guest.say(&FromGuest::Hello { version: VERSION });
        loop {
            match guest.hear() {
                Some(ToGuest::Control { .. }) => break,
                Some(_) => {}
                None => return,
            }
        }
        then(&mut guest);
        guest.stream.read_to_end(&mut Vec::new()).ok();
    })
}

fn data(link: u32, bytes: usize) -> FromGuest {
    FromGuest::Link { link, data: vec![7; bytes] }
}

/// What a guest says instead of `Listening`. The number is that of the first files of a run.
fn cannot_listen() -> FromGuest {
    FromGuest::Failed { request: 0, kind: wire::FailureKind::Listen, errno: 98 }
}

#[tokio::test]
async fn a_guest_that_lies_about_links_is_lost() {
    use FromGuest::{LinkClosed, LinkEnd, LinkOpened, LinkTaken, Listening};
    let beyond = || (0..=LINK_WINDOW_BYTES / CHUNK_BYTES_MAX).map(|_| data(0, CHUNK_BYTES_MAX)).collect();
    let lies: Vec<(&str, Vec<FromGuest>)> = vec![
        ("an unknown link", vec![data(1, 1)]),
        ("an end of an unknown link", vec![LinkEnd { link: 63 }]),
        ("a link beyond all", vec![LinkClosed { link: u32::MAX }]),
        ("bytes of an unknown link taken", vec![LinkTaken { link: 5, bytes: 0 }]),
        ("a number that is in use", vec![LinkOpened { link: 0, listener: 0 }]),
        ("a number out of range", vec![LinkOpened { link: LINKS_MAX, listener: 0 }]),
        ("a number far out of range", vec![LinkOpened { link: u32::MAX, listener: 0 }]),
        ("a listener that was not granted", vec![LinkOpened { link: 1, listener: 1 }]),
        ("a listener far out of range", vec![LinkOpened { link: 1, listener: 40 }]),
        ("a listener that listens twice", vec![Listening { request: 0, listener: 0 }]),
        ("a listener that it was not asked for", vec![Listening { request: 0, listener: 32 }]),
        ("more than the window", beyond()),
        ("no bytes", vec![data(0, 0)]),
        ("too long a piece", vec![data(0, CHUNK_BYTES_MAX + 1)]),
        ("bytes after the end", vec![LinkEnd { link: 0 }, data(0, 1)]),
        ("two ends", vec![LinkEnd { link: 0 }, LinkEnd { link: 0 }]),
        ("two closes", vec![LinkClosed { link: 0 }, LinkClosed { link: 0 }]),
        ("bytes after the close", vec![LinkClosed { link: 0 }, data(0, 1)]),
        (
            "a number before the host let it go",
            vec![LinkClosed { link: 0 }, LinkOpened { link: 0, listener: 0 }],
        ),
        ("bytes taken that were never sent", vec![LinkTaken { link: 0, bytes: 1 }]),
        ("that it cannot listen, after a link was used", vec![cannot_listen()]),
    ];
    for (name, lie) in lies {
        let fake = guest(move |guest| {
            guest.open();
            lie.iter().for_each(|message| guest.say(message));
        });
        let result = run(&fake, grant(idle)).await;
        assert_eq!(result.outcome, Outcome::Killed, "{name}");
        assert_eq!(fake.alive(), 0, "{name}");
    }
}

#[tokio::test]
async fn a_guest_that_was_told_of_no_listener_cannot_open_a_link() {
    let lies = [
        FromGuest::Listening { request: 0, listener: 0 },
        FromGuest::LinkOpened { link: 0, listener: 0 },
        data(0, 1),
        FromGuest::LinkTaken { link: 0, bytes: 1 },
        FromGuest::LinkEnd { link: 0 },
        FromGuest::LinkClosed { link: 0 },
        cannot_listen(),
    ];
    for lie in lies {
        let fake = guest(move |guest| guest.say(&lie));
        assert_eq!(run(&fake, Vec::new()).await.outcome, Outcome::Killed);
    }
    // With a grant, the guest must say that it listens before a program can have connected.
    let fake = guest(|guest| guest.say(&FromGuest::LinkOpened { link: 0, listener: 0 }));
    assert_eq!(run(&fake, grant(idle)).await.outcome, Outcome::Killed);
}

/// The names of the messages of a run whose program ends at once.
async fn messages_of(grants: Vec<Grant>) -> Vec<String> {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&heard);
    let fake = FakeBackend::new(move |stream| {
        let mut guest = Guest { stream, frames: FrameBuffer::default() };
        guest.say(&FromGuest::Hello { version: VERSION });
        while let Some(message) = guest.hear() {
            let is_last = matches!(message, ToGuest::StdinEnd { .. });
            let name = format!("{message:?}");
            kept.lock().unwrap().push(name.split([' ', '(']).next().unwrap().to_owned());
            if is_last {
                guest.exit();
            }
        }
    });
    assert_eq!(run(&fake, grants).await.outcome, Outcome::Completed);
    std::mem::take(&mut *heard.lock().unwrap())
}

#[tokio::test]
async fn a_run_without_grants_sends_the_messages_that_it_sent_before_links() {
    assert_eq!(messages_of(Vec::new()).await, ["Open", "PutFile", "Control", "StdinEnd"]);
    assert_eq!(messages_of(grant(idle)).await, ["Open", "Listen", "PutFile", "Control", "StdinEnd"]);
}

#[tokio::test]
async fn bytes_and_ends_pass_in_both_directions() {
    let fake = guest(|guest| {
        guest.open();
        guest.say(&FromGuest::Link { link: 0, data: b"hello".to_vec() });
        let mut got = Vec::new();
        while got.len() < 5 {
            match guest.hear_about_links() {
                Some(ToGuest::Link { link: 0, data }) => got.extend(data),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(got, b"hello");
        guest.say(&FromGuest::LinkEnd { link: 0 });
        assert_eq!(guest.hear_about_links(), Some(ToGuest::LinkEnd { link: 0 }));
        assert_eq!(guest.hear_about_links(), Some(ToGuest::LinkClosed { link: 0 }));
        guest.say(&FromGuest::LinkClosed { link: 0 });
        // The number is free again.
        guest.say(&FromGuest::LinkOpened { link: 0, listener: 0 });
        guest.say(&FromGuest::LinkClosed { link: 0 });
        assert_eq!(guest.hear_about_links(), Some(ToGuest::LinkClosed { link: 0 }));
        guest.say(&FromGuest::Output { process: MAIN, stream: Stream::Stdout, data: b"all".to_vec() });
        guest.exit();
    });
    let result = run(&fake, grant(echo)).await;
    assert_eq!((result.outcome, result.execution().stdout.as_slice()), (Outcome::Completed, &b"all"[..]));
}

#[tokio::test]
async fn a_broker_learns_who_asked_and_what_the_run_was_given() {
    let (tell, mut told) = tokio::sync::mpsc::channel(1);
    let serve = move |link: Link, call: LinkCall| {
        let tell = tell.clone();
        async move {
            drop(link);
            tell.send(call).await.unwrap();
            Ok(())
        }
    };
    let fake = guest(|guest| {
        guest.open();
        while !matches!(guest.hear_about_links(), Some(ToGuest::LinkClosed { .. }) | None) {}
        guest.exit();
    });
    assert_eq!(run(&fake, grant(serve)).await.outcome, Outcome::Completed);
    let call = told.recv().await.unwrap();
    assert_eq!(call.caller, Caller::local());
    assert_eq!(call.at, ListenAt::Socket(TOOLS_SOCKET.to_owned()));
    assert_eq!(call.terms.limits.wall_ms, Policy::built_in(2).defaults.wall_ms);
}

#[tokio::test]
async fn a_host_sends_no_more_than_the_window() {
    let counted = Arc::new(Mutex::new(0));
    let count = Arc::clone(&counted);
    let fake = guest(move |guest| {
        guest.open();
        // After one window the guest takes one byte, and one byte follows.
        let steps = [LINK_WINDOW_BYTES, LINK_WINDOW_BYTES + 1];
        while let Some(message) = guest.hear_about_links() {
            let ToGuest::Link { data, .. } = message else { panic!("{message:?}") };
            assert!(!data.is_empty() && data.len() <= CHUNK_BYTES_MAX);
            let mut sum = count.lock().unwrap();
            *sum += data.len();
            match *sum {
                sum if sum == steps[0] => guest.say(&FromGuest::LinkTaken { link: 0, bytes: 1 }),
                sum if sum == steps[1] => guest.exit(),
                _ => {}
            }
        }
    });
    let flood = |mut link: Link, _: LinkCall| async move {
        loop {
            link.write_all(&[1; 10_000]).await?;
        }
    };
    assert_eq!(run(&fake, grant(flood)).await.outcome, Outcome::Completed);
    assert_eq!(*counted.lock().unwrap(), LINK_WINDOW_BYTES + 1);
}

#[tokio::test]
async fn a_guest_may_send_more_once_the_broker_has_read() {
    let fake = guest(|guest| {
        guest.open();
        let mut window = LINK_WINDOW_BYTES;
        for _ in 0..64 {
            while window < CHUNK_BYTES_MAX {
                match guest.hear_about_links() {
                    Some(ToGuest::LinkTaken { link: 0, bytes }) => window += bytes as usize,
                    other => panic!("{other:?}"),
                }
            }
            window -= CHUNK_BYTES_MAX;
            guest.say(&data(0, CHUNK_BYTES_MAX));
        }
        guest.say(&FromGuest::LinkEnd { link: 0 });
        while !matches!(guest.hear_about_links(), Some(ToGuest::LinkClosed { .. }) | None) {}
        guest.exit();
    });
    let counted = Arc::new(Mutex::new(0));
    let count = Arc::clone(&counted);
    let sink = move |mut link: Link, _: LinkCall| {
        let count = Arc::clone(&count);
        async move {
            let mut all = Vec::new();
            *count.lock().unwrap() = link.read_to_end(&mut all).await?;
            Ok(())
        }
    };
    assert_eq!(run(&fake, grant(sink)).await.outcome, Outcome::Completed);
    assert_eq!(*counted.lock().unwrap(), 64 * CHUNK_BYTES_MAX);
}

#[tokio::test]
async fn a_broker_that_never_reads_delays_neither_output_nor_the_end() {
    let fake = guest(|guest| {
        guest.open();
        (0..LINK_WINDOW_BYTES / CHUNK_BYTES_MAX).for_each(|_| guest.say(&data(0, CHUNK_BYTES_MAX)));
        guest.say(&FromGuest::Output { process: MAIN, stream: Stream::Stdout, data: b"on".to_vec() });
        guest.exit();
    });
    let result = run(&fake, grant(idle)).await;
    assert_eq!((result.outcome, result.execution().stdout.as_slice()), (Outcome::Completed, &b"on"[..]));
}

#[tokio::test]
async fn a_broker_that_fails_or_panics_closes_its_link_alone() {
    let fake = || {
        guest(|guest| {
            guest.open();
            assert_eq!(guest.hear_about_links(), Some(ToGuest::LinkEnd { link: 0 }));
            assert_eq!(guest.hear_about_links(), Some(ToGuest::LinkClosed { link: 0 }));
            guest.say(&FromGuest::LinkClosed { link: 0 });
            guest.exit();
        })
    };
    let failing = |_: Link, _: LinkCall| async { Err(io::ErrorKind::NotFound.into()) };
    assert_eq!(run(&fake(), grant(failing)).await.outcome, Outcome::Completed);
    let panicking = |_: Link, _: LinkCall| async { panic!("a broker") };
    assert_eq!(run(&fake(), grant(panicking)).await.outcome, Outcome::Completed);
}

#[tokio::test]
async fn brokers_are_told_of_the_end_before_the_result() {
    let ended = Arc::new(Mutex::new(None));
    let kept = Arc::clone(&ended);
    let serve = move |mut link: Link, _: LinkCall| {
        let kept = Arc::clone(&kept);
        async move {
            let error = link.read(&mut [0; 16]).await.unwrap_err();
            let write = link.write(b"x").await.unwrap_err();
            *kept.lock().unwrap() = Some((error.kind(), write.kind()));
            Err(error)
        }
    };
    let fake = guest(|guest| {
        guest.open();
        guest.exit();
    });
    assert_eq!(run(&fake, grant(serve)).await.outcome, Outcome::Completed);
    let aborted = io::ErrorKind::ConnectionAborted;
    assert_eq!(*ended.lock().unwrap(), Some((aborted, aborted)));
}

#[tokio::test]
async fn a_run_whose_sandbox_cannot_listen_does_not_start() {
    const EADDRINUSE: i32 = 98;
    let fake = FakeBackend::new(|stream| {
        let mut guest = Guest { stream, frames: FrameBuffer::default() };
        guest.say(&FromGuest::Hello { version: VERSION });
        while let Some(message) = guest.hear() {
            if let ToGuest::Listen { request, .. } = message {
                guest.say(&FromGuest::Failed { request, kind: FailureKind::Listen, errno: EADDRINUSE });
            }
        }
    });
    let result = run(&fake, grant(idle)).await;
    let error = result.error.unwrap();
    assert_eq!((result.outcome, error.code.as_str()), (Outcome::Unavailable, "listen_failed"));
    assert!(error.remedy.is_some() && error.cause.is_some());
    assert_eq!(fake.alive(), 0);
}

#[tokio::test]
async fn too_many_grants_are_refused() {
    let fake = FakeBackend::new(|_| panic!("a sandbox was made"));
    let grants = (0..9).flat_map(|_| grant(idle)).collect();
    let result = run(&fake, grants).await;
    assert_eq!((result.outcome, result.error.unwrap().code.as_str()), (Outcome::Refused, "bad_grants"));
}
