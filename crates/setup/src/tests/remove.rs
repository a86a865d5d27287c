//! Taking Palisade out of a client's file, changing its connection, and the list of clients.

use super::*;

#[test]
fn what_was_set_up_is_removed_again_and_the_rest_stays() {
    for client in &CLIENTS {
        for newline in ["\n", "\r\n"] {
            let scene = Scene::new();
            let before = with_other_server(client, newline);
            let path = scene.before(client, &before);
            scene.set_up(client).unwrap();
            let said = task(client).remove(&scene.places).unwrap();
            assert!(said.contains("was removed") && said.contains("before:"), "{said}");
            assert_eq!(entry_in(client, &fs::read_to_string(&path).unwrap()), None, "{}", client.name);
            assert!(fs::read_to_string(&path).unwrap().contains("other"), "{}", client.name);
            assert!(task(client).remove(&scene.places).unwrap().contains("is not set up"), "{}", client.name);
        }
        let bare = Scene::new();
        assert!(task(client).remove(&bare.places).unwrap().contains("is not set up"));
        assert!(!bare.path(client).exists(), "nothing is made");
    }
}

#[test]
fn the_other_connection_replaces_palisades_own_entry_without_force() {
    let own = |client: &Client| client.entry(COMMAND);
    for client in CLIENTS.iter().filter(|client| client.http.is_some()) {
        let scene = Scene::new();
        scene.set_up(client).unwrap();
        let connection = Connection::Http(client.http.unwrap(), Remote::new(None, None).unwrap());
        let by_address = Task { connection, ..task(client) };
        by_address.set_up(&scene.places, false).unwrap();
        scene.set_up(client).unwrap();
        let text = fs::read_to_string(scene.path(client)).unwrap();
        assert!(json_edit::is_same(&entry_in(client, &text).unwrap(), &own(client)), "{}", client.name);
    }
    for foreign in [
        json!({ "command": "/usr/bin/palisade", "args": ["mcp"], "env": { "A": "b" } }),
        json!({ "command": "/usr/bin/other", "args": ["mcp"] }),
        json!({ "url": "https://tools.example/mcp" }),
    ] {
        assert!(!clients::is_own_entry(&foreign), "{foreign}");
    }
}

#[test]
fn the_list_says_which_clients_are_found() {
    let scene = Scene::new();
    fs::create_dir(scene.places.home.join(".cursor")).unwrap();
    let list = list_of(&scene.places, Reach::User, "palisade", COMMAND);
    let line = |name: &str| list.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(line("cursor").contains("no file yet"), "{list}");
    assert!(line("claude-code").contains("not found here"), "{list}");
    assert!(line("zed").contains("not found here"), "{list}");
}
