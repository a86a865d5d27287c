//! Tests of ClientHellos, whole, split and malformed.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn with_length(bytes: &[u8], width: usize) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
    [&length[4 - width..], bytes].concat()
}

fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &with_length(data, 2)].concat()
}

fn names(names: &[&str]) -> Vec<u8> {
    let list: Vec<u8> =
        names.iter().flat_map(|name| [vec![0], with_length(name.as_bytes(), 2)].concat()).collect();
    with_length(&list, 2)
}

/// The handshake message with these extensions.
fn message(extensions: &[Vec<u8>]) -> Vec<u8> {
    let mut hello = vec![3, 3];
    hello.extend_from_slice(&[7; 32]);
    hello.extend(with_length(&[1; 32], 1));
    hello.extend(with_length(&[0x13, 1, 0x13, 2], 2));
    hello.extend(with_length(&[0], 1));
    hello.extend(with_length(&extensions.concat(), 2));
    [vec![CLIENT_HELLO], with_length(&hello, 3)].concat()
}

/// Records of at most that many bytes.
pub(crate) fn records(message: &[u8], size: usize) -> Vec<u8> {
    let record = |part: &[u8]| [vec![RECORD_HANDSHAKE, 3, 1], with_length(part, 2)].concat();
    message.chunks(size).flat_map(record).collect()
}

/// A ClientHello for that server.
pub(crate) fn hello(name: &str) -> Vec<u8> {
    records(&message(&[extension(0x2b, &[2, 3, 4]), extension(0, &names(&[name]))]), 16_000)
}

#[test]
fn the_name_is_read_from_one_record_and_from_many() {
    let whole = message(&[extension(0xabab, &[]), extension(0, &names(&["Api.Example"]))]);
    for size in [16_000, 100, 7, 1] {
        let bytes = records(&whole, size);
        assert_eq!(look(&bytes), Ok(Seen::Name(Some("Api.Example".to_owned()))), "{size}");
        for cut in 1..bytes.len() {
            assert_eq!(look(&bytes[..cut]), Ok(Seen::Partial), "{size} {cut}");
        }
    }
    assert_eq!(look(&records(&message(&[]), 999)), Ok(Seen::Name(None)));
    assert_eq!(look(&[]), Ok(Seen::Partial));
}

#[test]
fn a_hello_for_another_server_is_refused() {
    let host = Host::parse("api.example").unwrap();
    assert_eq!(check(Some("API.example"), &host), Ok(()));
    for name in ["api.example.", "evil.example", "xapi.example", "api.example\0", "", "127.0.0.1"] {
        assert_eq!(check(Some(name), &host), Err(Refusal::SniMismatch), "{name}");
    }
    assert_eq!(check(None, &host), Err(Refusal::SniMissing));
    let address = Host::parse("192.0.2.1").unwrap();
    assert_eq!(check(None, &address), Ok(()));
    assert_eq!(check(Some("evil.example"), &address), Err(Refusal::SniMismatch));
}

#[test]
fn two_names_and_two_extensions_are_malformed() {
    let one = || extension(0, &names(&["a.example"]));
    for extensions in [
        vec![extension(0, &names(&["a.example", "b.example"]))],
        vec![one(), one()],
        vec![one(), extension(0, &names(&["b.example"]))],
        vec![extension(0, &[])],
        vec![extension(0, &[0, 3, 1, 0, 0])],
        vec![extension(0, &[names(&["a.example"]), vec![1]].concat())],
    ] {
        assert!(matches!(look(&records(&message(&extensions), 999)), Err(Refusal::NotTls(_))));
    }
    let mut long = message(&[one()]);
    long.extend_from_slice(&[1, 2, 3]);
    long[3] += 3;
    assert!(matches!(look(&records(&long, 999)), Err(Refusal::NotTls(_))));
}

#[test]
fn other_bytes_than_a_hello_are_refused_at_once() {
    for bytes in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"SSH-2.0-x\r\n",
        &[22, 2, 0],
        &[22, 3, 1, 0, 0],
        &[22, 3, 1, 0, 1, 2],
        &[23, 3, 3],
        &[0x80, 0x2e, 1],
    ] {
        assert!(matches!(look(bytes), Err(Refusal::NotTls(_))), "{bytes:?}");
    }
    let huge = [vec![CLIENT_HELLO], vec![0, 0x80, 0]].concat();
    assert!(matches!(look(&records(&huge, 999)), Err(Refusal::NotTls(_))));
    // As many records as there may be bytes, and the message is not complete.
    let drip = records(&[vec![CLIENT_HELLO, 0, 0x3f, 0xff], vec![0; 4000]].concat(), 1);
    assert!(matches!(look(&drip), Err(Refusal::NotTls(_))));
}

proptest! {
    #![proptest_config(harness::properties())]

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in vec(any::<u8>(), 0..300), cut in 0..200_usize) {
        look(&bytes).ok();
        look(&records(&[vec![CLIENT_HELLO, 0], with_length(&bytes, 2)].concat(), 64)).ok();
        let mut changed = hello("a.example");
        for (at, byte) in bytes.iter().take(2).enumerate() {
            let place = (cut + at) % changed.len();
            changed[place] = *byte;
        }
        look(&changed).ok();
    }
}
