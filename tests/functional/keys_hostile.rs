//! What a stranger may try with a key. Each case is a test of its own.

use functional::http::{Answer, Request, Server};
use functional::keys::{SECOND, create, keys, printed, revoke, showing, status, time_until};
use functional::socket::upgrade;
use harness::{Build, Palisade, users};
use serde_json::json;

struct Scene {
    server: Server,
    key: String,
}

impl Scene {
    /// A server and a key that it knows.
    fn new() -> Self {
        let server = Server::start();
        let key = create("ci", "run,sandbox");
        assert!(time_until(&server, &key, 200) < SECOND);
        Self { server, key }
    }

    fn part(&self, index: usize) -> &str {
        self.key.split('_').nth(index).unwrap()
    }

    fn list(&self) -> Request {
        Request::modern("tools/list", json!({}))
    }

    fn ask(&self, bearer: &str) -> Answer {
        self.server.ask(&showing(self.list(), bearer))
    }

    #[track_caller]
    fn refuses(&self, bearer: &str) {
        let answer = self.ask(bearer);
        assert_eq!(answer.status, 401, "{bearer}: {answer:?}");
        let challenge = answer.header("www-authenticate").unwrap_or_default();
        assert!(challenge.starts_with("Bearer realm=\"palisade\""), "{answer:?}");
        assert!(!answer.text().contains(self.part(2)), "the answer repeats the secret");
    }
}

#[test]
fn a_truncated_key_is_refused() {
    let scene = Scene::new();
    for length in [0, 4, 5, 10, 21, 22, 50, scene.key.len() - 7, scene.key.len() - 1] {
        scene.refuses(&scene.key[..length]);
    }
}

#[test]
fn a_key_with_a_wrong_check_is_refused_as_mistyped() {
    let scene = Scene::new();
    let last = if scene.key.ends_with('0') { "1" } else { "0" };
    let mistyped = format!("{}{last}", &scene.key[..scene.key.len() - 1]);
    scene.refuses(&mistyped);
    assert!(scene.ask(&mistyped).text().contains("mistyped"));
}

#[test]
fn the_secret_of_another_key_is_refused() {
    let scene = Scene::new();
    let other = create("other", "admin");
    time_until(&scene.server, &other, 200);
    let parts: Vec<&str> = other.split('_').collect();
    scene.refuses(&format!("plsk_{}_{}_{}", scene.part(1), parts[2], parts[3]));
    scene.refuses(&format!("plsk_{}_{}_{}", parts[1], scene.part(2), parts[3]));
}

#[test]
fn an_unknown_id_is_refused_without_a_hint() {
    let scene = Scene::new();
    revoke("ci");
    // A whole key whose id this server does not know: one of another state directory.
    let foreign = foreign_key("ci");
    time_until(&scene.server, &scene.key, 401);
    let (unknown, revoked) = (scene.ask(&foreign).text(), scene.ask(&scene.key).text());
    assert!(unknown.contains("not valid on this server"), "{unknown}");
    assert!(revoked.contains("revoked"), "only the holder of the secret is told: {revoked}");
}

/// A key of another state directory, with the same name.
fn foreign_key(name: &str) -> String {
    let folder = functional::own_folder(users()[0], "keys-elsewhere");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&folder, private).unwrap();
    let args = ["keys", "create", name, "--scope", "admin", "--policy", "open"];
    let made =
        Palisade::new(Build::Real, users()[0], &args).env("PALISADE_STATE_DIR", folder.to_str().unwrap());
    let ended = made.end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    ended.stdout.trim().to_owned()
}

#[test]
fn a_key_of_another_state_directory_is_refused() {
    let scene = Scene::new();
    scene.refuses(&foreign_key("ci"));
}

#[test]
fn look_alike_characters_are_refused() {
    let scene = Scene::new();
    for (own, look_alike) in [("plsk", "рlsk"), ("_", "＿"), ("l", "ⅼ"), ("k", "K")] {
        scene.refuses(&scene.key.replacen(own, look_alike, 1));
    }
    scene.refuses(&scene.key.to_uppercase());
    scene.refuses(&format!("{}\u{200b}", scene.key));
    scene.refuses(&scene.key.replacen('_', "%5f", 1));
}

#[test]
fn two_authorization_headers_are_refused_even_if_both_are_right() {
    let scene = Scene::new();
    for (first, second) in [(&scene.key, &scene.key), (&scene.key, &scene.server.token)] {
        let twice = showing(showing(scene.list(), first), second);
        assert_eq!(scene.server.ask(&twice).status, 401);
    }
    scene.refuses(&format!("{}, Bearer {}", scene.key, scene.key));
    let protocol = upgrade().header("Sec-WebSocket-Protocol", &format!("mcp, bearer.{}", scene.key));
    assert_eq!(scene.server.ask(&showing(protocol, &scene.key)).status, 401, "a header and a subprotocol");
}

#[test]
fn a_key_in_the_address_or_in_a_cookie_is_not_read() {
    let scene = Scene::new();
    let key = &scene.key;
    for path in
        [format!("/metrics?access_token={key}"), format!("/metrics?key={key}"), format!("/metrics#{key}")]
    {
        assert_eq!(scene.server.ask(&Request::get(&path).without("Authorization")).status / 100, 4, "{path}");
    }
    for (name, value) in [
        ("Cookie", format!("token={key}; authorization=Bearer {key}")),
        ("X-Api-Key", key.clone()),
        ("Proxy-Authorization", format!("Bearer {key}")),
        ("X-Forwarded-User", "owner".to_owned()),
        ("X-Forwarded-Authorization", format!("Bearer {key}")),
    ] {
        let answer = scene.server.ask(&scene.list().header(name, &value).without("Authorization"));
        assert_eq!(answer.status, 401, "{name}: {answer:?}");
    }
}

#[test]
fn a_very_long_header_is_refused_and_the_server_goes_on() {
    let scene = Scene::new();
    scene.refuses(&format!("{}{}", scene.key, "0".repeat(7_000)));
    scene.refuses(&format!("plsk_{}", "_".repeat(20_000)));
    let mut wire = scene.server.connect();
    let huge = showing(scene.list(), &"a".repeat(200_000)).bytes(&scene.server);
    let answer = wire.try_send(&huge).and_then(|()| wire.try_answer());
    assert!(answer.map_or(true, |answer| answer.status / 100 == 4));
    assert_eq!(status(&scene.server, &scene.key), 200);
}

#[test]
fn a_key_that_expired_a_second_ago_is_refused() {
    let server = Server::start();
    let key = printed(&["create", "brief", "--scope", "run", "--policy", "open", "--expires", "1s"]);
    std::thread::sleep(SECOND * 2);
    let answer = server.ask(&showing(Request::modern("tools/list", json!({})), &key));
    assert_eq!(answer.status, 401);
    assert!(answer.text().contains("expired"), "{answer:?}");
    drop(server);
    let server = Server::start();
    assert_eq!(status(&server, &key), 401, "after a restart");
}

#[test]
fn a_revoked_key_cannot_be_rotated_back_to_life() {
    let scene = Scene::new();
    revoke("ci");
    for which in ["ci", scene.part(1)] {
        let ended = keys(&["rotate", which]);
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        assert!(ended.stderr.contains("revoked") && ended.stdout.is_empty(), "{ended:?}");
    }
    assert!(time_until(&scene.server, &scene.key, 401) < SECOND);
    revoke("ci");
    scene.refuses(&scene.key);
}

#[test]
fn a_key_cannot_take_the_session_or_the_name_of_the_owner() {
    let scene = Scene::new();
    let session = scene.server.open_session();
    let stolen = Request::legacy("tools/list", json!({})).header("Mcp-Session-Id", &session);
    assert_eq!(scene.server.ask(&showing(stolen, &scene.key)).status, 404);
    assert_eq!(keys(&["create", "owner", "--scope", "admin"]).status.code(), Some(2));
}

#[test]
fn a_server_without_a_token_refuses_a_wrong_key_and_holds_a_right_one_to_its_scopes() {
    let server = Server::start_as(users()[0], &["--listen", "127.0.0.1:0", "--no-auth"]);
    let key = create("ci", "run");
    time_until(&server, &key, 200);
    assert_eq!(status(&server, &key[..key.len() - 1]), 401);
    assert_eq!(server.ask(&showing(Request::get("/metrics"), &key)).status, 403);
    assert_eq!(
        server.ask(&Request::get("/metrics").without("Authorization")).status,
        200,
        "nothing is shown"
    );
    revoke("ci");
    assert!(time_until(&server, &key, 401) < SECOND);
}

#[test]
fn keys_that_others_could_have_written_do_not_count() {
    let scene = Scene::new();
    let gate = harness::state_dir(users()[0]).join("gate");
    let set =
        |mode| std::fs::set_permissions(&gate, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    set(0o777);
    assert!(time_until(&scene.server, &scene.key, 503) < SECOND * 2);
    assert_eq!(status(&scene.server, &scene.server.token), 200);
    assert!(keys(&["list"]).stderr.contains("chmod go-w"));
    set(0o700);
    assert!(time_until(&scene.server, &scene.key, 200) < SECOND);
}
