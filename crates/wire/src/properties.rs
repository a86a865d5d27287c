//! Properties of messages on the wire, over arbitrary messages.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::{
    Exit, FailureKind, FileEntry, FileKind, Fork, FromGuest, ListenAt, OpenProcess, Stream, ToGuest,
    WindowSize, checks, encode,
};

const DATA_BYTES_MAX: usize = 300;

fn data() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..DATA_BYTES_MAX)
}

fn open() -> impl Strategy<Value = OpenProcess> {
    let fork = prop_oneof![Just(Fork::Never), Just(Fork::Once), Just(Fork::Again)];
    let environment = vec((any::<String>(), any::<String>()), 0..4);
    let numbers = (any::<u32>(), any::<u32>(), any::<bool>());
    let terminal = proptest::option::of(size());
    (numbers, vec(any::<String>(), 0..4), environment, any::<String>(), (fork, terminal)).prop_map(
        |((process, after, has_channel), argv, env, cwd, (fork, terminal))| OpenProcess {
            process,
            after,
            argv,
            env,
            cwd,
            has_channel,
            fork,
            terminal,
        },
    )
}

fn size() -> impl Strategy<Value = WindowSize> {
    (any::<u16>(), any::<u16>()).prop_map(|(rows, columns)| WindowSize { rows, columns })
}

fn listen_at() -> impl Strategy<Value = ListenAt> {
    prop_oneof![any::<String>().prop_map(ListenAt::Socket), any::<u16>().prop_map(ListenAt::Loopback)]
}

fn to_guest() -> impl Strategy<Value = ToGuest> {
    let (process, after, request) = (any::<u32>, any::<u32>, any::<u32>);
    prop_oneof![
        open().prop_map(ToGuest::Open),
        (process(), after(), data()).prop_map(|(process, after, data)| ToGuest::Control {
            process,
            after,
            data
        }),
        (process(), after(), data()).prop_map(|(process, after, data)| ToGuest::Stdin {
            process,
            after,
            data
        }),
        process().prop_map(|process| ToGuest::StdinEnd { process }),
        (process(), any::<i32>()).prop_map(|(process, signal)| ToGuest::Signal { process, signal }),
        (request(), any::<String>(), any::<bool>(), data())
            .prop_map(|(request, path, append, data)| ToGuest::PutFile { request, path, append, data }),
        (request(), any::<String>(), any::<u64>(), any::<u32>())
            .prop_map(|(request, path, offset, bytes)| ToGuest::ReadFile { request, path, offset, bytes }),
        (request(), any::<u32>())
            .prop_map(|(request, entries_max)| ToGuest::ListFiles { request, entries_max }),
        (request(), any::<u32>(), listen_at()).prop_map(|(request, listener, at)| ToGuest::Listen {
            request,
            listener,
            at
        }),
        request().prop_map(|request| ToGuest::EndLinks { request }),
        (any::<u32>(), data()).prop_map(|(link, data)| ToGuest::Link { link, data }),
        (any::<u32>(), any::<u32>()).prop_map(|(link, bytes)| ToGuest::LinkTaken { link, bytes }),
        any::<u32>().prop_map(|link| ToGuest::LinkEnd { link }),
        any::<u32>().prop_map(|link| ToGuest::LinkClosed { link }),
        (request(), process(), any::<String>()).prop_map(|(request, process, path)| ToGuest::OpenInput {
            request,
            process,
            path
        }),
        process().prop_map(|process| ToGuest::CloseInput { process }),
        (request(), process()).prop_map(|(request, process)| ToGuest::AwaitRead { request, process }),
        (process(), size()).prop_map(|(process, size)| ToGuest::Resize { process, size }),
        Just(ToGuest::KillRest),
        Just(ToGuest::Shutdown),
    ]
}

fn entry() -> impl Strategy<Value = FileEntry> {
    let kinds = [FileKind::Regular, FileKind::Directory, FileKind::Symlink, FileKind::Other];
    let kind = proptest::sample::select(kinds.to_vec());
    (any::<String>(), kind, any::<u64>(), any::<i64>())
        .prop_map(|(path, kind, size_bytes, modified_ns)| FileEntry { path, kind, size_bytes, modified_ns })
}

fn from_guest() -> impl Strategy<Value = FromGuest> {
    let (process, request) = (any::<u32>, any::<u32>);
    let stream = prop_oneof![Just(Stream::Stdout), Just(Stream::Stderr)];
    let exit = prop_oneof![any::<i32>().prop_map(Exit::Code), any::<i32>().prop_map(Exit::Signal)];
    prop_oneof![
        any::<u32>().prop_map(|version| FromGuest::Hello { version }),
        (process(), stream, data()).prop_map(|(process, stream, data)| FromGuest::Output {
            process,
            stream,
            data
        }),
        (process(), data()).prop_map(|(process, data)| FromGuest::Control { process, data }),
        (process(), any::<u32>()).prop_map(|(process, bytes)| FromGuest::StdinTaken { process, bytes }),
        (process(), exit).prop_map(|(process, exit)| FromGuest::Exited { process, exit }),
        (request(), data()).prop_map(|(request, data)| FromGuest::FileData { request, data }),
        (request(), vec(entry(), 0..5)).prop_map(|(request, entries)| FromGuest::Files { request, entries }),
        request().prop_map(|request| FromGuest::Done { request }),
        (request(), any::<u32>()).prop_map(|(request, listener)| FromGuest::Listening { request, listener }),
        (any::<u32>(), any::<u32>()).prop_map(|(link, listener)| FromGuest::LinkOpened { link, listener }),
        (any::<u32>(), data()).prop_map(|(link, data)| FromGuest::Link { link, data }),
        (any::<u32>(), any::<u32>()).prop_map(|(link, bytes)| FromGuest::LinkTaken { link, bytes }),
        any::<u32>().prop_map(|link| FromGuest::LinkEnd { link }),
        any::<u32>().prop_map(|link| FromGuest::LinkClosed { link }),
        (request(), any::<i32>()).prop_map(|(request, errno)| FromGuest::Failed {
            request,
            kind: FailureKind::File,
            errno
        }),
    ]
}

proptest! {
    #![proptest_config(harness::properties())]

    #[test]
    fn what_a_host_sends_arrives(sent in vec(to_guest(), 0..6), piece in 1..400_usize) {
        let stream: Vec<u8> = sent.iter().flat_map(|message| encode(message).unwrap()).collect();
        prop_assert_eq!(checks::stream::<ToGuest>(&stream, piece), (sent, None));
    }

    #[test]
    fn what_a_guest_sends_arrives(sent in vec(from_guest(), 0..6), piece in 1..400_usize) {
        let stream: Vec<u8> = sent.iter().flat_map(|message| encode(message).unwrap()).collect();
        prop_assert_eq!(checks::stream::<FromGuest>(&stream, piece), (sent, None));
    }

    #[test]
    fn a_stream_that_breaks_off_gives_the_messages_before(
        sent in vec(from_guest(), 1..6),
        kept in 0.0..1.0_f64,
    ) {
        let frames: Vec<Vec<u8>> = sent.iter().map(|message| encode(message).unwrap()).collect();
        let mut stream = frames.concat();
        stream.truncate((stream.len() as f64 * kept) as usize);
        let (got, error) = checks::stream::<FromGuest>(&stream, 64);
        prop_assert_eq!(error, None);
        prop_assert_eq!(&got[..], &sent[..got.len()]);
        let whole: usize = frames[..got.len()].iter().map(Vec::len).sum();
        prop_assert!(frames.get(got.len()).is_none_or(|next| whole + next.len() > stream.len()));
    }
}
