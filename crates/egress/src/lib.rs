//! The broker for the web: it gives programs the hosts that the operator allows, and no others.
//!
//! A program talks to an HTTP proxy on a loopback port of its sandbox; each connection is a link to this broker. The
//! steps of one connection, in order:
//!
//! ```text
//! 1 head      strict: 8 KiB, 10 s, CONNECT or absolute form only                     head
//! 2 host      one type for names and addresses                                       host
//! 3 rules     the allow-list, before any name is looked up                           rules
//! 4 address   looked up once for a run and name, pinned, checked, dialled            resolve, address, dial
//! 5 hello     a tunnel begins with a ClientHello for the host, unless a rule is raw   hello
//! 6 request   a plain request only where a rule says so; written anew, one only      plain
//! 7 caps      bytes, connections, time, idleness                                     budget, tunnel
//! 8 verdict   403 with code, reason and remedy; host, address, bytes are counted     refusal, record
//! ```
//! What must hold: everything that a program sends is hostile; the checked address is the dialled one; nothing is looked
//! up for a host that is not allowed; a connection is counted however it ends. TLS is not intercepted: what is inside of a
//! tunnel to an allowed host is not seen.

mod address;
mod budget;
mod dial;
mod dns;
mod gateway;
mod head;
mod hello;
mod host;
mod plain;
mod record;
mod refusal;
mod resolve;
mod rules;
mod session;
mod tunnel;

pub use budget::Maxima;
pub use dial::Upstream;
pub use gateway::{Bundle, Gateway, GatewayConfig, PROXY_PORT, SecretGrant, Tested};
pub use host::{Host, Name, NotAHost};
pub use refusal::Refusal;
pub use resolve::Resolver;
pub use rules::Rule;
pub use session::Session;
