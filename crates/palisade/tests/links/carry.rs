//! What a link carries, and who can open one.

use engine::RunRequest;
use engine::links::{Link, LinkCall, ListenAt, TOOLS_SOCKET};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::stage::{PORT, Stage, at, count, echo, program, tools};

pub(crate) async fn a_program_talks_to_a_broker_over_the_tools_socket(stage: &Stage) {
    let code = r#"
c = connect(); c.sendall(b"hello"); print(read_exactly(c, 5).decode())
c.sendall(b" again"); print(read_exactly(c, 6).decode())
print(os.stat(PATH).st_uid == os.getuid(), os.path.commonpath([PATH, os.getcwd()]))
"#;
    assert_eq!(stage.python(code, tools(echo)).await, "hello\n again\nTrue /");
    // Nothing of it is there without a grant.
    let code = r#"
try: connect()
except OSError as error: print(type(error).__name__, os.path.exists("/tmp/.palisade"))
"#;
    assert_eq!(stage.python(code, Vec::new()).await, "FileNotFoundError False");
}

pub(crate) async fn a_program_talks_to_a_broker_over_a_loopback_port(stage: &Stage) {
    let code = format!(
        r#"
c = socket.create_connection(("127.0.0.1", {PORT}))
c.sendall(b"x" * 100000); c.shutdown(socket.SHUT_WR)
print(len(read_all(c)))
try: socket.create_connection(("127.0.0.2", {PORT}))
except OSError as error: print(type(error).__name__)
"#
    );
    let grants = vec![at(ListenAt::Loopback(PORT), echo)];
    assert_eq!(stage.python(&code, grants).await, "100000\nConnectionRefusedError");
}

pub(crate) async fn half_a_connection_ends_in_either_direction(stage: &Stage) {
    // The program ends its direction first.
    let code = r#"
c = connect(); c.sendall(b"abc"); c.shutdown(socket.SHUT_WR); print(read_all(c).decode())
"#;
    assert_eq!(stage.python(code, tools(count)).await, "3");
    // The broker ends its direction first.
    let first = |mut link: Link, _: LinkCall| async move {
        link.write_all(b"bye").await?;
        link.shutdown().await?;
        let mut all = Vec::new();
        link.read_to_end(&mut all).await?;
        assert_eq!(all, b"still here");
        Ok(())
    };
    for code in [
        "c = connect(); print(read_all(c).decode()); c.sendall(b'still here'); c.close()".to_owned(),
        format!(
            "c = socket.create_connection(('127.0.0.1', {PORT})); print(read_all(c).decode()); c.sendall(b'still here'); c.close()"
        ),
    ] {
        let mut grants = tools(first);
        grants.push(at(ListenAt::Loopback(PORT), first));
        assert_eq!(stage.python(&code, grants).await, "bye");
    }
}

pub(crate) async fn much_passes_in_both_directions_at_once(stage: &Stage) {
    let code = r#"
import hashlib
c = connect(); data = os.urandom(1 << 20) * 16
def send():
    c.sendall(data); c.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
got = read_all(c)
print(len(got), hashlib.sha256(got).digest() == hashlib.sha256(data).digest())
"#;
    assert_eq!(stage.python(code, tools(echo)).await, format!("{} True", 16 << 20));
}

pub(crate) async fn forks_threads_and_other_programs_connect(stage: &Stage) {
    let code = r#"
import subprocess
def talk(word):
    c = connect(); c.sendall(word); return read_exactly(c, len(word))
inherited = connect()
child = os.fork()
if child == 0:
    inherited.sendall(b"fork")
    os._exit(0 if talk(b"own") == b"own" else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), read_exactly(inherited, 4).decode())
results = []
threads = [threading.Thread(target=lambda n=n: results.append(talk(b"%d" % n) == b"%d" % n)) for n in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
print(all(results), len(results))
script = f"import socket; c = socket.socket(socket.AF_UNIX); c.connect({PATH!r}); c.sendall(b'sub'); print(c.recv(9).decode())"
print(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout.strip())
# No descriptor of the guest is inherited: the program has its own sockets only.
print(sorted(os.readlink(f"/proc/self/fd/{n}").split(":")[0] for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")).count("socket"))
"#;
    // One is the driver's channel, one is `inherited`.
    assert_eq!(stage.python(code, tools(echo)).await, "0 fork\nTrue 8\nsub\n2");
}

pub(crate) async fn a_compiled_language_and_bash_connect(stage: &Stage) {
    let code = format!(
        r#"
exec 5<>/dev/tcp/127.0.0.1/{PORT}
echo hello >&5
read -r line <&5
echo "$line"
"#
    );
    let bash =
        RunRequest { language: "bash".to_owned(), ..program("", vec![at(ListenAt::Loopback(PORT), echo)]) };
    assert_eq!(stage.completes(RunRequest { code, ..bash }).await, "hello");
    let code = format!(
        r#"
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
int main(void) {{
    struct sockaddr_un at = {{ .sun_family = AF_UNIX, .sun_path = "{TOOLS_SOCKET}" }};
    int c = socket(AF_UNIX, SOCK_STREAM, 0);
    char got[9] = {{0}};
    if (connect(c, (struct sockaddr *)&at, sizeof at) || write(c, "from C", 6) != 6 || read(c, got, 8) < 1) return 1;
    puts(got);
}}
"#
    );
    if stage.engine.runtimes().find("c").await.is_ok() {
        let c = RunRequest { language: "c".to_owned(), ..program("", tools(echo)) };
        assert_eq!(stage.completes(RunRequest { code, ..c }).await, "from C");
    }
}

pub(crate) async fn two_listeners_have_brokers_of_their_own(stage: &Stage) {
    let mut grants = tools(echo);
    grants.push(at(ListenAt::Loopback(PORT), count));
    let code = format!(
        r#"
a, b = connect(), socket.create_connection(("127.0.0.1", {PORT}))
for c in (a, b): c.sendall(b"abc"); c.shutdown(socket.SHUT_WR)
print(read_all(a).decode(), read_all(b).decode())
"#
    );
    assert_eq!(stage.python(&code, grants).await, "abc 3");
}
