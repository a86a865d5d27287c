//! Sessions of the older revisions that their clients abandon.

use functional::http::{LEGACY, Request, Server};
use serde_json::json;

/// Sessions that the test abandons, and the memory that they may hold together. One holds about 60 kB, and 256 may
/// be idle; the bound is generous, because an allocator keeps memory that was freed.
const ABANDONED: usize = 1500;
const HELD_KB_MAX: u64 = 45_000;

fn memory_kb(server: &Server) -> u64 {
    let pid = server.pid().as_raw_nonzero();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn status(server: &Server, session: &str) -> u16 {
    let list = Request::legacy("tools/list", json!({})).header("Mcp-Session-Id", session);
    server.ask(&list.header("MCP-Protocol-Version", LEGACY)).status
}

#[test]
fn abandoned_sessions_hold_little_memory_and_one_in_use_is_kept() {
    let server = Server::start();
    let (used, first) = (server.open_session(), server.open_session());
    let mut stream = server.connect();
    let listening =
        Request::get("/mcp").header("Accept", "text/event-stream").header("Mcp-Session-Id", &used);
    stream.send(&listening.header("MCP-Protocol-Version", LEGACY).bytes(&server));
    assert_eq!(stream.head().unwrap().status, 200);
    let before = memory_kb(&server);
    for _ in 0..ABANDONED {
        server.open_session();
    }
    let held = memory_kb(&server).saturating_sub(before);
    assert!(held < HELD_KB_MAX, "{ABANDONED} sessions hold {held} kB");
    assert!(server.metric("palisade_mcp_sessions") <= 300.0);
    assert_eq!(status(&server, &first), 404, "the session that was idle longest");
    assert_eq!(status(&server, &used), 200, "a session with an open stream");
}
