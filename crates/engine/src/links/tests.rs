//! The table of links without a sandbox: the maximum of all links' memory, and what a link gives back.

use std::io::{self, Write};
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
    table_over(Arc::new(Keeps), memory)
}

fn table_over(broker: Arc<dyn Broker>, memory: &Arc<LinkMemory>) -> LinkTable {
    let grants = vec![Grant { at: ListenAt::Loopback(8080), broker }];
    let (caller, terms) = (Caller::local(), Arc::new(Terms::default()));
    let mut table = LinkTable::new(Arc::new(Reach {
        grants,
        caller,
        terms,
        memory: Arc::clone(memory),
        pause: Arc::default(),
    }));
    table.take(FromGuest::Listening { request: 0, listener: 0 }).unwrap();
    table
}

fn open(table: &mut LinkTable, link: u32) -> Result<(), Lie> {
    table.take(FromGuest::LinkOpened { link, listener: 0 })
}

/// Ends every link at once.
struct Ends;

impl Broker for Ends {
    fn serve(self: Arc<Self>, _: Link, _: LinkCall) -> BoxFuture<'static, io::Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

#[tokio::test]
async fn a_number_is_free_as_soon_as_both_sides_have_closed_it() {
    let memory = Arc::new(LinkMemory::default());
    let mut table = table_over(Arc::new(Ends), &memory);
    let (host, mut guest) = std::os::unix::net::UnixStream::pair().unwrap();
    let hello = wire::encode(&FromGuest::Hello { version: wire::VERSION }).unwrap();
    guest.write_all(&hello).unwrap();
    let (_reader, mut writer) = crate::guest_client::connect(host).await.unwrap();
    open(&mut table, 0).unwrap();
    tokio::time::timeout(std::time::Duration::from_secs(5), table.rung()).await.unwrap();
    table.pump(&mut writer).unwrap();
    assert!(writer.queued_bytes() > 0, "the host has closed its end");
    table.take(FromGuest::LinkClosed { link: 0 }).unwrap();
    open(&mut table, 0).unwrap();
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
