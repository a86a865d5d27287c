//! SIGHUP: `serve` reads certificate and token again without a restart; on a terminal, and for `mcp`, it is the end.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use functional::http::{Request, Server};
use functional::serving::{self, Terminal};
use functional::socket::Socket;
use functional::tls::{Certificate, certificate};
use functional::{SOON, own_folder, until};
use harness::mcp::Client;
use harness::{state_dir, users};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

/// The name in the certificate that the server shows.
fn shown_name(server: &Server) -> String {
    let mut client = Command::new("openssl");
    client.args(["s_client", "-connect", &server.address.to_string()]);
    let ended = client.stdin(Stdio::null()).stderr(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    let name = text.lines().find_map(|line| line.strip_prefix("subject=")?.rsplit('=').next().map(str::trim));
    name.unwrap_or_default().to_owned()
}

fn count(server: &Server, event: &str) -> usize {
    server.log().matches(&format!("\"event\":\"{event}\"")).count()
}

#[test]
fn a_new_certificate_is_used_and_a_bad_one_is_not() {
    let user = users()[0];
    let (own, next) = (own_folder(user, "reload"), own_folder(user, "reload-next"));
    let (Some(own), Some(next)) = (certificate(&own, "first"), certificate(&next, "second")) else { return };
    let Certificate { certificate: chain, key } = &own;
    let files = ["--listen", "127.0.0.1:0", "--tls-cert", chain, "--tls-key", key];
    let server = Server::start_as(user, &files);
    assert_eq!(shown_name(&server), "first");

    fs::copy(&next.certificate, chain).unwrap();
    server.signal(Signal::HUP);
    until(SOON, "the failure is logged", || (count(&server, "reload_failed") == 1).then_some(()));
    assert_eq!(shown_name(&server), "first", "a certificate without its key was used");

    fs::copy(&next.key, key).unwrap();
    server.signal(Signal::HUP);
    until(SOON, "the new certificate is shown", || (shown_name(&server) == "second").then_some(()));

    fs::write(chain, "no certificate").unwrap();
    server.signal(Signal::HUP);
    until(SOON, "the failure is logged", || (count(&server, "reload_failed") == 2).then_some(()));
    assert_eq!(shown_name(&server), "second");
}

#[test]
fn a_new_token_is_asked_for_and_the_old_one_is_nobodys() {
    let user = users()[0];
    let server = Server::start();
    let list = |token: &str| {
        let request = Request::modern("tools/list", json!({}));
        server.ask(&request.header("Authorization", &format!("Bearer {token}"))).status
    };
    let mut socket = Socket::open(&server);
    let file = state_dir(user).join("token");
    let new = "n".repeat(40);
    fs::write(&file, &new).unwrap();
    assert_eq!((list(&server.token), list(&new)), (200, 401), "before the signal");
    server.signal(Signal::HUP);
    until(SOON, "the new token is asked for", || (list(&new) == 200).then_some(()));
    assert_eq!(list(&server.token), 401);
    assert!(socket.is_ended(), "a WebSocket of the old token lives on");

    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    server.signal(Signal::HUP);
    until(SOON, "the failure is logged", || (count(&server, "reload_failed") == 1).then_some(()));
    assert_eq!(list(&new), 200);
    assert!(!server.log().contains(&new), "the token is in the log");
}

#[test]
fn a_replaced_token_ends_streams_calls_and_runs_that_it_began() {
    let server = Server::start();
    let session = server.open_session();
    let mut events = server.connect();
    let listen =
        Request::get("/mcp").header("Accept", "text/event-stream").header("Mcp-Session-Id", &session);
    events.send(&listen.bytes(&server));
    assert_eq!(events.head().unwrap().status, 200);
    let mut call = server.connect();
    call.send(&Request::run("bash", "sleep 60").bytes(&server));
    until(SOON, "the run is in progress", || (server.metric("palisade_runs_live ") >= 1.0).then_some(()));

    let new = "m".repeat(40);
    fs::write(state_dir(users()[0]).join("token"), &new).unwrap();
    server.signal(Signal::HUP);
    let since = Instant::now();
    events.rest();
    assert_eq!(call.try_answer().map_or(401, |answer| answer.status), 401);
    assert!(since.elapsed() < Duration::from_secs(1), "it took {:?}", since.elapsed());
    let live = || {
        let page = Request::get("/metrics").header("Authorization", &format!("Bearer {new}"));
        let page = server.ask(&page).text();
        page.lines().find_map(|line| line.strip_prefix("palisade_runs_live ")?.trim().parse::<f64>().ok())
    };
    until(SOON, "the run is cancelled", || (live() == Some(0.0)).then_some(()));
}

#[test]
fn a_server_on_a_terminal_ends_with_it() {
    let other = serving::Server::start(users()[0], "reload-terminal");
    let terminal = Terminal::start(&other, "serve --listen 127.0.0.1:0 --log-format json");
    let address = until(SOON, "the server listens", || {
        let screen = terminal.screen.text();
        let (_, rest) = screen.split_once("\"url\":\"http://")?;
        rest.split_once("/mcp\"").map(|(address, _)| address.to_owned())
    });
    assert!(TcpStream::connect(&address).is_ok());
    drop(terminal);
    until(SOON * 2, "the server ends", || TcpStream::connect(&address).is_err().then_some(()));
}

#[test]
fn a_server_on_standard_input_ends() {
    let client = Client::new(users()[0]);
    client.call("get_capabilities", json!({}));
    let process = format!("/proc/{}/stat", client.pid());
    kill_process(Pid::from_raw(i32::try_from(client.pid()).unwrap()).unwrap(), Signal::HUP).unwrap();
    until(SOON, "the server ends", || {
        let stat = fs::read_to_string(&process).unwrap_or_default();
        (stat.is_empty() || stat.contains(") Z ")).then_some(())
    });
}
