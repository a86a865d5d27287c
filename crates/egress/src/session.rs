//! The web of one run: its rules, budgets, pinned names and counts. One session serves all links of a run.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use engine::access::{AccessRecord, Reached};
use engine::links::{Broker, Link, LinkCall};
use sandbox::BoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::budget::{Budget, Way};
use crate::dial::{Upstream, dial};
use crate::head::{Ask, HEAD_BYTES_MAX, Head, Plain, end_of_head};
use crate::hello::{self, Seen};
use crate::host::Host;
use crate::plain::send_body;
use crate::record::{Connection, Record};
use crate::refusal::Refusal;
use crate::resolve::{Pins, Resolver};
use crate::rules::{Match, Rule, Speech, Wanted, find};
use crate::tunnel::{Meter, both, is_used_up};

/// How long a head, and the first message of a tunnel, may take.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
const OPENED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";
/// A TLS alert, fatal: access denied (RFC 8446, section 6).
const ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

/// The part of a session that one name of access brings.
pub(crate) struct Opening {
    pub(crate) access: String,
    pub(crate) rules: Vec<Rule>,
    pub(crate) budget: Budget,
}

/// The web of one run.
pub struct Session {
    pub(crate) openings: Vec<Opening>,
    pub(crate) resolver: Resolver,
    pub(crate) upstream: Option<Upstream>,
    pub(crate) pins: Pins,
    pub(crate) record: Arc<Record>,
}

impl Broker for Session {
    fn serve(self: Arc<Self>, link: Link, _: LinkCall) -> BoxFuture<'static, io::Result<()>> {
        Box::pin(async move { self.serve_stream(link).await })
    }
}

/// A request that may be carried out.
struct Admitted<'a> {
    rule: &'a Rule,
    budget: &'a Budget,
    connection: Connection,
    origin: TcpStream,
    _place: tokio::sync::OwnedSemaphorePermit,
}

/// Why a request is not carried out.
enum NotAdmitted {
    Refused(Refusal),
    /// The connection was decided, and its end is recorded with the refusal.
    NotDialled(Refusal),
}

impl From<Refusal> for NotAdmitted {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Session {
    /// What the run has reached so far.
    pub fn reached(&self) -> Vec<Reached> {
        self.record.reached()
    }

    /// Serves one connection of a program.
    pub async fn serve_stream<S: AsyncRead + AsyncWrite + Unpin + Send>(
        &self,
        mut link: S,
    ) -> io::Result<()> {
        let (head, rest) = match read_head(&mut link).await? {
            Ok(read) => read,
            Err(refusal) => return self.refuse(&mut link, "-", refusal).await,
        };
        let head = match Head::parse(&head) {
            Ok(head) => head,
            Err(refusal) => return self.refuse(&mut link, "-", refusal).await,
        };
        let place = format!("{}:{}", head.host, head.port);
        let admitted = match self.admit(&head, &place).await {
            Ok(admitted) => admitted,
            Err(NotAdmitted::Refused(refusal)) => return self.refuse(&mut link, &place, refusal).await,
            Err(NotAdmitted::NotDialled(refusal)) => return answer(&mut link, &place, refusal).await,
        };
        match &head.ask {
            Ask::Connect => carry_tunnel(&head, admitted, link, rest).await,
            Ask::Plain(plain) => carry_request(&head, plain, admitted, link, rest).await,
        }
    }

    async fn refuse<S: AsyncWrite + Unpin>(
        &self,
        link: &mut S,
        place: &str,
        refusal: Refusal,
    ) -> io::Result<()> {
        self.record.refused(place, refusal);
        answer(link, place, refusal).await
    }

    /// Steps 3 and 4: the rules, then the address, then the connection to it.
    async fn admit(&self, head: &Head, place: &str) -> Result<Admitted<'_>, NotAdmitted> {
        let (rule, opening) = self.allowed(head)?;
        let permit = opening.budget.connect()?;
        // A budget that is used up opens no connection any more.
        opening.budget.check()?;
        let addresses = self.addresses(&head.host, rule).await?;
        let first = addresses.first().copied();
        let connection = Connection::decided(&self.record, &opening.access, place, first)?;
        let dialled = match &self.upstream {
            Some(upstream) => upstream.dial(&head.host, head.port).await,
            None => dial(&addresses, head.port).await,
        };
        match dialled {
            Ok(origin) => Ok(Admitted { rule, budget: &opening.budget, connection, origin, _place: permit }),
            Err(refusal) => {
                connection.refuse(refusal);
                Err(NotAdmitted::NotDialled(refusal))
            }
        }
    }

    fn allowed(&self, head: &Head) -> Result<(&Rule, &Opening), Refusal> {
        let wanted = match head.ask {
            Ask::Connect => Wanted::Tunnel,
            Ask::Plain(_) => Wanted::Request,
        };
        let rules =
            self.openings.iter().flat_map(|opening| opening.rules.iter().map(move |rule| (rule, opening)));
        match find(rules, (&head.host, head.port), wanted) {
            Match::Allowed(rule, opening) => Ok((rule, opening)),
            Match::OtherSpeech => Err(Refusal::SpeechDenied),
            Match::None => Err(Refusal::HostDenied),
        }
    }

    /// The addresses that may be dialled; none with an upstream proxy, which looks names up itself.
    pub(crate) async fn addresses(&self, host: &Host, rule: &Rule) -> Result<Vec<IpAddr>, Refusal> {
        let addresses = match host {
            Host::Address(address) => vec![*address],
            Host::Name(_) if self.upstream.is_some() => return Ok(Vec::new()),
            Host::Name(name) => self.pins.addresses(self.resolver, name).await?,
        };
        let mut objection = None;
        let mut checked = addresses;
        checked.retain(|address| {
            let found = rule.reach.objection(*address);
            objection = objection.or(found);
            found.is_none()
        });
        match (checked.is_empty(), objection) {
            (true, Some(objection)) => Err(Refusal::AddressDenied(objection)),
            (true, None) => Err(Refusal::Unresolved),
            (false, _) => Ok(checked),
        }
    }
}

/// Tells the program why it does not reach the host.
async fn answer(link: &mut (impl AsyncWrite + Unpin), place: &str, refusal: Refusal) -> io::Result<()> {
    link.write_all(&refusal.answer(place)).await?;
    link.shutdown().await
}

/// Reads a head. Also returns the bytes that came behind it.
async fn read_head(link: &mut (impl AsyncRead + Unpin)) -> io::Result<Result<(Vec<u8>, Vec<u8>), Refusal>> {
    let mut bytes = Vec::new();
    let read = async {
        let mut piece = [0; 2048];
        loop {
            if let Some(end) = end_of_head(&bytes).filter(|end| *end <= HEAD_BYTES_MAX) {
                let rest = bytes.split_off(end);
                return Ok(Ok((std::mem::take(&mut bytes), rest)));
            }
            if bytes.len() >= HEAD_BYTES_MAX {
                return Ok(Err(Refusal::HeadTooLong));
            }
            match link.read(&mut piece).await? {
                0 if bytes.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
                0 => return Ok(Err(Refusal::BadRequest("the head is not complete"))),
                count => bytes.extend_from_slice(&piece[..count]),
            }
        }
    };
    tokio::time::timeout(HEAD_PATIENCE, read).await.unwrap_or(Ok(Err(Refusal::HeadTooSlow)))
}

/// Step 5, and the bytes of the tunnel.
async fn carry_tunnel<S: AsyncRead + AsyncWrite + Unpin>(
    head: &Head,
    admitted: Admitted<'_>,
    mut link: S,
    mut first: Vec<u8>,
) -> io::Result<()> {
    let Admitted { rule, budget, connection, mut origin, _place } = admitted;
    let meter = Meter::new(budget, &connection);
    link.write_all(OPENED).await?;
    if rule.speech != Speech::Raw {
        let heard = tokio::time::timeout(HEAD_PATIENCE, hear_hello(&mut link, &mut first)).await;
        let heard = heard.unwrap_or(Ok(Err(Refusal::NotTls("no ClientHello came within 10 s"))))?;
        if let Err(refusal) = heard.and_then(|name| hello::check(name.as_deref(), &head.host)) {
            connection.refuse(refusal);
            link.write_all(&ACCESS_DENIED).await?;
            return link.shutdown().await;
        }
    }
    meter.pass(Way::Out, first.len())?;
    origin.write_all(&first).await?;
    drop(first);
    let (from_program, to_program) = tokio::io::split(link);
    let (from_origin, to_origin) = origin.into_split();
    let out = meter.copy(Way::Out, from_program, to_origin);
    let into = meter.copy(Way::In, from_origin, to_program);
    both(&meter, out, into).await
}

/// Reads until the ClientHello is complete, and returns the server that it names.
async fn hear_hello(
    link: &mut (impl AsyncRead + Unpin),
    first: &mut Vec<u8>,
) -> io::Result<Result<Option<String>, Refusal>> {
    let mut piece = [0; 4096];
    loop {
        match hello::look(first) {
            Ok(Seen::Name(name)) => return Ok(Ok(name)),
            Ok(Seen::Partial) => {}
            Err(refusal) => return Ok(Err(refusal)),
        }
        match link.read(&mut piece).await? {
            0 => return Ok(Err(Refusal::NotTls("the tunnel ended before a ClientHello"))),
            count => first.extend_from_slice(&piece[..count]),
        }
    }
}

/// Step 6: one request, and its answer.
async fn carry_request<S: AsyncRead + AsyncWrite + Unpin>(
    head: &Head,
    plain: &Plain,
    admitted: Admitted<'_>,
    link: S,
    rest: Vec<u8>,
) -> io::Result<()> {
    let Admitted { budget, connection, mut origin, _place, .. } = admitted;
    let meter = Meter::new(budget, &connection);
    let (from_program, mut to_program) = tokio::io::split(link);
    let written = head.rewritten(plain);
    if let Err(error) = meter.pass(Way::Out, written.len()) {
        let refusal = is_used_up(&error).unwrap_or(Refusal::TooManyBytes);
        to_program.write_all(&refusal.answer(&head.host.to_string())).await?;
        return to_program.shutdown().await;
    }
    origin.write_all(&written).await?;
    // The half towards the origin stays open until the answer: some servers take its end for a client that has gone.
    let (from_origin, mut to_origin) = origin.into_split();
    let body = BufReader::new(std::io::Cursor::new(rest).chain(from_program));
    let out = send_body(&meter, plain.body, body, &mut to_origin);
    let into = meter.copy(Way::In, from_origin, to_program);
    // The answer ends the connection, also when it comes before the whole body. A body that is no body ends it, too.
    tokio::pin!(out, into);
    let answered = async {
        tokio::select! {
            answered = &mut into => answered,
            sent = &mut out => { sent?; into.await }
        }
    };
    tokio::select! {
        ended = answered => ended,
        () = meter.expired() => Err(io::ErrorKind::TimedOut.into()),
    }
}
