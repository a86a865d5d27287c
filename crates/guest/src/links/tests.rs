//! The guest's links without a sandbox: programs are socket pairs, and the host is the end of a stream.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, Timespec};
use wire::{FrameBuffer, LINK_WINDOW_BYTES};

use super::*;

/// Links with a host that reads everything.
struct Scene {
    links: Links,
    host: Host,
    host_end: UnixStream,
    frames: FrameBuffer,
}

impl Scene {
    fn new() -> Self {
        let (ours, host_end) = UnixStream::pair().unwrap();
        host_end.set_nonblocking(true).unwrap();
        let host = Host::new(OwnedFd::from(ours)).unwrap();
        Self { links: Links::default(), host, host_end, frames: FrameBuffer::default() }
    }

    /// Adds a link and returns the program's end.
    fn connect(&mut self) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let number = (0..LINKS_MAX).find(|number| !self.links.open.contains_key(number)).unwrap();
        self.links.open.insert(number, Link::new(OwnedFd::from(ours)));
        theirs
    }

    /// Polls once without waiting and serves what is ready. Returns how many descriptors were ready.
    fn turn(&mut self) -> usize {
        let mut ready = Vec::new();
        for (name, descriptor, flags) in self.links.interests(true, 1) {
            let mut list = [PollFd::from_borrowed_fd(descriptor, flags)];
            rustix::event::poll(&mut list, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
            if let (LinkReady::Link(number), false) = (name, list[0].revents().is_empty()) {
                ready.push((number, list[0].revents()));
            }
        }
        let count = ready.len();
        self.links.serve(ready, &mut self.host).unwrap();
        self.host.flush().unwrap();
        count
    }

    /// What the host heard.
    fn heard(&mut self) -> Vec<FromGuest> {
        self.host.flush().unwrap();
        let mut bytes = vec![0; 1 << 20];
        while let Ok(count @ 1..) = self.host_end.read(&mut bytes) {
            self.frames.extend(&bytes[..count]);
            self.host.flush().unwrap();
        }
        std::iter::from_fn(|| self.frames.next().unwrap()).collect()
    }

    fn polls_listeners(&self) -> bool {
        self.links.interests(true, 1).any(|(name, ..)| matches!(name, LinkReady::Listener(_)))
    }
}

fn flood(program: &mut UnixStream) {
    while program.write(&[7; 65_536]).is_ok() {}
}

#[test]
fn a_listener_is_not_polled_at_the_maximum_or_while_it_rests() {
    let mut scene = Scene::new();
    let path = std::env::temp_dir().join(format!("palisade-listener-{}/s.sock", std::process::id()));
    scene.links.listen(0, &ListenAt::Socket(path.to_string_lossy().into_owned())).unwrap();
    assert!(scene.links.listen(0, &ListenAt::Loopback(1)).is_err(), "the number is in use");
    assert!(scene.links.listen(LISTENERS_MAX, &ListenAt::Loopback(1)).is_err());
    assert!(scene.polls_listeners());
    let mut programs: Vec<UnixStream> = (0..LINKS_MAX).map(|_| scene.connect()).collect();
    assert!(!scene.polls_listeners());
    // The program goes; the number is free when the host has closed the link too.
    drop(programs.pop());
    while scene.turn() > 0 {}
    let heard = scene.heard();
    assert_eq!(heard, [FromGuest::LinkEnd { link: 63 }, FromGuest::LinkClosed { link: 63 }]);
    assert!(!scene.polls_listeners());
    scene.links.host_closed(63, &mut scene.host).unwrap();
    assert!(scene.polls_listeners());
    scene.links.resting = Some(Instant::now() + REST);
    assert!(!scene.polls_listeners() && scene.links.pause().is_some());
    scene.links.resting = Some(Instant::now());
    assert!(scene.polls_listeners() && scene.links.pause().is_none(), "a rest that is over wakes nobody");
    scene.links.end();
    assert!(!path.exists() && !path.parent().unwrap().exists());
}

#[test]
fn a_link_without_window_is_left_alone_until_the_host_took_bytes() {
    let mut scene = Scene::new();
    let mut program = scene.connect();
    let mut sent = 0;
    for _ in 0..64 {
        flood(&mut program);
        scene.turn();
        sent += bytes_of(&scene.heard());
    }
    assert_eq!(sent, LINK_WINDOW_BYTES);
    // Gone with bytes unread: poll would report it for ever.
    drop(program);
    assert_eq!(scene.turn(), 0);
    scene.links.taken(0, LINK_WINDOW_BYTES as u32, &mut scene.host).unwrap();
    let mut heard = Vec::new();
    while scene.turn() > 0 {
        heard.extend(scene.heard());
    }
    assert!(bytes_of(&heard) > 0);
    assert_eq!(heard[heard.len() - 2..], [FromGuest::LinkEnd { link: 0 }, FromGuest::LinkClosed { link: 0 }]);
}

#[test]
fn links_share_the_budget_of_a_turn() {
    let mut scene = Scene::new();
    let mut programs: Vec<UnixStream> = (0..5).map(|_| scene.connect()).collect();
    programs.iter_mut().for_each(flood);
    let mut heard_of = [0; 5];
    for _ in 0..3 {
        scene.turn();
        let heard = scene.heard();
        assert!(bytes_of(&heard) <= TURN_BYTES);
        for message in heard {
            let FromGuest::Link { link, .. } = message else { panic!("{message:?}") };
            heard_of[link as usize] += 1;
        }
    }
    assert!(heard_of.iter().all(|count| *count > 0), "{heard_of:?}");
}

#[test]
fn bytes_for_a_program_that_does_not_read_are_bounded() {
    let mut scene = Scene::new();
    let mut program = scene.connect();
    for _ in 0..64 {
        scene.links.receive(0, &[7; CHUNK_BYTES_MAX], &mut scene.host).unwrap();
    }
    let taken: usize = taken_of(&scene.heard());
    let mut got = 0;
    let mut bytes = vec![0; 1 << 20];
    while let Ok(count @ 1..) = program.read(&mut bytes) {
        got += count;
        scene.turn();
    }
    assert!(got <= taken + LINK_WINDOW_BYTES + CHUNK_BYTES_MAX, "{got} bytes after {taken}");
    assert!(taken_of(&scene.heard()) > 0);
}

#[test]
fn a_program_that_is_gone_takes_what_comes_for_it() {
    let mut scene = Scene::new();
    drop(scene.connect());
    for _ in 0..8 {
        scene.links.receive(0, &[7; CHUNK_BYTES_MAX], &mut scene.host).unwrap();
    }
    while scene.turn() > 0 {}
    let heard = scene.heard();
    assert!(
        heard.ends_with(&[FromGuest::LinkEnd { link: 0 }, FromGuest::LinkClosed { link: 0 }]),
        "{heard:?}"
    );
    scene.links.host_closed(0, &mut scene.host).unwrap();
    assert!(scene.links.is_empty());
    // The host may speak of it a little longer.
    scene.links.receive(0, b"late", &mut scene.host).unwrap();
    assert_eq!(scene.heard(), []);
}

fn bytes_of(heard: &[FromGuest]) -> usize {
    heard.iter().map(|message| if let FromGuest::Link { data, .. } = message { data.len() } else { 0 }).sum()
}

fn taken_of(heard: &[FromGuest]) -> usize {
    let taken =
        |message: &FromGuest| if let FromGuest::LinkTaken { bytes, .. } = message { *bytes } else { 0 };
    heard.iter().map(|message| taken(message) as usize).sum()
}
