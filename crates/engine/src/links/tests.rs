//! The table of links without a sandbox: the maximum of all links' memory, and what a link gives back.

use std::io;
use std::sync::Arc;

use policy::{Caller, Terms};
use sandbox::BoxFuture;
use wire::FromGuest;

use super::table::Lie;
use super::{Broker, Grant, Link, LinkCall, LinkMemory, LinkTable, ListenAt, Reach};

/// Keeps its links for ever.
struct Keeps;

impl Broker for Keeps {
    fn serve(self: Arc<Self>, link: Link, _: LinkCall) -> BoxFuture<'static, io::Result<()>> {
        Box::pin(async move {
            std::future::pending::<()>().await;
            drop(link);
            Ok(())
        })
    }
}

fn table(memory: &Arc<LinkMemory>) -> LinkTable {
    let grants = vec![Grant { at: ListenAt::Loopback(8080), broker: Arc::new(Keeps) }];
    let (caller, terms) = (Caller::local(), Arc::new(Terms::default()));
    let mut table = LinkTable::new(Arc::new(Reach { grants, caller, terms, memory: Arc::clone(memory) }));
    table.take(FromGuest::Listening { request: 0, listener: 0 }).unwrap();
    table
}

fn open(table: &mut LinkTable, link: u32) -> Result<(), Lie> {
    table.take(FromGuest::LinkOpened { link, listener: 0 })
}

#[tokio::test]
async fn links_of_all_runs_share_one_maximum_and_give_their_memory_back() {
    let bytes = 3 * (wire::LINK_WINDOW_BYTES + wire::CHUNK_BYTES_MAX);
    let memory = Arc::new(LinkMemory::new(bytes));
    let (mut one, mut other) = (table(&memory), table(&memory));
    open(&mut one, 0).unwrap();
    open(&mut one, 1).unwrap();
    open(&mut other, 0).unwrap();
    assert_eq!(memory.left(), 0);
    // Refused, which is no lie: the host closes it.
    open(&mut other, 1).unwrap();
    assert_eq!(open(&mut other, 1), Err(Lie), "the number is taken until both sides have closed it");
    one.cut().await;
    tokio::task::yield_now().await;
    assert!(memory.left() > 0);
    other.cut().await;
    while memory.left() < bytes {
        tokio::task::yield_now().await;
    }
}
