//! Bounds: how many links there are, what they hold, and that none holds up output or another link.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::links::{Link, LinkCall};
use policy::Ask;
use sandbox::Outcome;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::stage::{Stage, count, echo, idle, program, run, told, tools};

pub(crate) async fn sixty_four_links_are_open_and_the_next_one_waits(stage: &Stage) {
    let open = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let counts = (Arc::clone(&open), Arc::clone(&most));
    let counted = move |link: Link, call: LinkCall| {
        let (open, most) = (Arc::clone(&counts.0), Arc::clone(&counts.1));
        async move {
            let now = open.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(now, Ordering::SeqCst);
            let served = echo(link, call).await;
            open.fetch_sub(1, Ordering::SeqCst);
            served
        }
    };
    let code = r#"
def answers(c):
    c.sendall(b"x")
    c.settimeout(0.3)
    try: return c.recv(1) == b"x"
    except TimeoutError: return False
all = [connect() for _ in range(70)]
print(sum(answers(c) for c in all[:64]), [answers(c) for c in all[64:]])
for c in all[:10]: c.close()
for c in all[64:]: c.settimeout(10)
print([c.recv(1) for c in all[64:]])
"#;
    let stdout = stage.python(code, tools(counted)).await;
    let waiting = format!("[{}]", ["False"; 6].join(", "));
    let answered = format!("[{}]", ["b'x'"; 6].join(", "));
    assert_eq!(stdout, format!("64 {waiting}\n{answered}"));
    assert_eq!(most.load(Ordering::SeqCst), 64);
}

pub(crate) async fn few_open_files_are_enough_for_some_links(stage: &Stage) {
    // The least that a sandbox has is 32 descriptors for each process, and process 1 has no more. Children of the
    // program connect, because the program itself has too few descriptors for so many connections. Most of them wait
    // in the kernel's queue; when they are gone, the guest still serves new ones.
    let code = r#"
import resource
limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
ok = 0
connections = [connect() for _ in range(20)]
children = []
for n in range(3):
    child = os.fork()
    if child == 0:
        for c in connections: c.close()
        more = [connect() for _ in range(12)]
        os._exit(0)
    children.append(child)
for child in children: os.waitpid(child, 0)
for c in connections[1:]: c.close()
for n in range(100):
    c = connect(); c.sendall(b"x"); ok += c.recv(1) == b"x"; c.close()
print(limit, ok)
"#;
    let mut request = program(code, tools(echo));
    request.ask = Ask { open_files: Some(32), ..request.ask };
    let stdout = told(&run(&stage.engine, request).await);
    let (limit, ok) = stdout.split_once(' ').unwrap();
    assert!(limit.parse::<u32>().unwrap() <= 64, "{stdout}");
    assert_eq!(ok, "100");
}

pub(crate) async fn a_program_that_never_reads_blocks_its_broker_alone(stage: &Stage) {
    let sent = Arc::new(AtomicUsize::new(0));
    let kept = Arc::clone(&sent);
    let flood = move |mut link: Link, _: LinkCall| {
        let sent = Arc::clone(&kept);
        async move {
            loop {
                sent.fetch_add(link.write(&[7; 1 << 16]).await?, Ordering::SeqCst);
            }
        }
    };
    let code = r#"
deaf = [connect() for _ in range(4)]
time.sleep(0.5)
c = connect(); print(len(read_exactly(c, 1 << 22)))
"#;
    assert_eq!(stage.python(code, tools(flood)).await, format!("{}", 1 << 22));
    // Each deaf connection holds a window, a piece at the host and what its socket takes.
    let most = (4 << 20) + 5 * ((256 << 10) + (64 << 10) + (512 << 10));
    let sent = sent.load(Ordering::SeqCst);
    assert!(sent <= most, "{sent} bytes were taken from the broker");
}

pub(crate) async fn a_flood_over_a_link_does_not_hold_up_output(stage: &Stage) {
    // The program floods a link for the whole run and prints meanwhile. The order of its lines is kept.
    let code = r#"
stop = False
def flood():
    c = connect(); data = b"x" * 65536
    while not stop: c.sendall(data)
floods = [threading.Thread(target=flood) for _ in range(3)]
[t.start() for t in floods]
for n in range(2000): print(n)
stop = True
[t.join() for t in floods]
"#;
    let stdout = stage.python(code, tools(count)).await;
    assert!(stdout.lines().map(|line| line.parse::<usize>().unwrap()).eq(0..2000));
}

pub(crate) async fn a_flood_of_output_does_not_hold_up_a_link(stage: &Stage) {
    let code = r#"
c = connect(); stop = False
def flood(descriptor):
    data = b"x" * 65536
    while not stop: os.write(descriptor, data)
floods = [threading.Thread(target=flood, args=[n]) for n in (1, 2)]
[t.start() for t in floods]
for n in range(100):
    c.sendall(b"ping"); assert read_exactly(c, 4) == b"ping"
stop = True
[t.join() for t in floods]
"#;
    let mut request = program(code, tools(echo));
    request.ask = Ask { output_kb: Some(1 << 20), ..request.ask };
    let result = run(&stage.engine, request).await;
    assert_eq!(result.outcome, Outcome::Completed, "{:?}", result.error);
    assert!(result.execution().stdout.len() > 1 << 16);
}

pub(crate) async fn one_flooding_link_does_not_hold_up_another(stage: &Stage) {
    let code = r#"
stop = False
def flood():
    c = connect(); c.sendall(b"F"); data = b"x" * 65536
    while not stop: c.sendall(data)
floods = [threading.Thread(target=flood) for _ in range(4)]
[t.start() for t in floods]
c = connect(); c.sendall(b"E")
for n in range(300):
    c.sendall(b"ping"); assert read_exactly(c, 4) == b"ping"
stop = True
print("answered")
[t.join() for t in floods]
"#;
    let either = |mut link: Link, call: LinkCall| async move {
        let mut kind = [0];
        link.read_exact(&mut kind).await?;
        if kind == *b"F" { count(link, call).await } else { echo(link, call).await }
    };
    assert_eq!(stage.python(code, tools(either)).await, "answered");
}

pub(crate) async fn many_connections_leave_nothing_behind(stage: &Stage) {
    let code = r#"
for n in range(3000):
    c = connect(); c.sendall(b"x"); assert c.recv(1) == b"x"; c.close()
print("done")
"#;
    let open = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    stage.python("c = connect()", tools(echo)).await;
    let before = open();
    assert_eq!(stage.python(code, tools(echo)).await, "done");
    // The sandbox is destroyed in the background, and what is kept for the next one is dropped within seconds.
    for _ in 0..100 {
        if open() <= before + 8 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("{before} descriptors became {}", open());
}

pub(crate) async fn a_full_disk_prevents_the_run_and_says_so(stage: &Stage) {
    let sandbox = stage.sandbox().await;
    let fill = r#"
n = 0
try:
    while True:
        open(f"/tmp/{n}", "wb").write(b"x" * (1 << 20)); n += 1
except OSError: pass
try:
    while True:
        open(f"/tmp/s{n}", "wb").write(b"x"); n += 1
except OSError: pass
print("full")
"#;
    let result = stage.run_in(&sandbox, program(fill, Vec::new())).await;
    if result.outcome != Outcome::Completed {
        // The disk watch ended the run: this sandbox's writable space cannot be filled by a program.
        return;
    }
    let result = stage.run_in(&sandbox, program("connect()", tools(idle))).await;
    let error = result.error.unwrap();
    assert_eq!((result.outcome, error.code.as_str()), (Outcome::Unavailable, "listen_failed"));
    let freed = "import glob\nfor name in glob.glob('/tmp/*'): os.remove(name)";
    told(&stage.run_in(&sandbox, program(freed, Vec::new())).await);
    told(&stage.run_in(&sandbox, program("connect()", tools(idle))).await);
}
