//! The fake keeps the contract, and a fake that breaks it is noticed. Walls that run programs are broken in
//! tests/relay, one area at a time.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use super::{Area, Subject, check, check_area};
use crate::fake::FakeBackend;
use crate::{Backend, Guarantee};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn speaks(mut stream: UnixStream) {
    stream.write_all(b"hello").ok();
    stream.read_to_end(&mut Vec::new()).ok();
}

fn of(backend: &dyn Backend) -> Subject<'_> {
    Subject { backend, guest: None }
}

#[test]
fn the_fake_keeps_the_contract() {
    let fake = FakeBackend::new(speaks);
    let areas = wait(check(of(&fake))).unwrap();
    let expected = [Area::Promises, Area::Stream, Area::Ends, Area::Lease, Area::Inventory];
    assert!(expected.iter().all(|area| areas.contains(area)), "{areas:?}");
    assert_eq!(fake.alive(), 0);
}

#[test]
fn a_guest_that_never_speaks_breaks_the_contract() {
    let silent = FakeBackend::new(drop);
    let broken = wait(check(of(&silent))).unwrap_err();
    assert!(broken.starts_with("Stream: the guest speaks first"), "{broken}");
}

#[test]
fn an_area_is_checked_alone() {
    let silent = FakeBackend::new(drop);
    assert_eq!(wait(check_area(of(&silent), Area::Promises)), Ok(()));
    let lacking = FakeBackend::new(speaks).lacking(Guarantee::NetworkNone);
    assert_eq!(wait(check_area(of(&lacking), Area::Promises)), Ok(()), "an absence that is told is allowed");
}

#[test]
fn a_wall_that_builds_nothing_breaks_the_contract() {
    let fake = FakeBackend::new(speaks);
    fake.set_broken(true);
    assert!(wait(check(of(&fake))).unwrap_err().starts_with("Promises: probe"));
}
