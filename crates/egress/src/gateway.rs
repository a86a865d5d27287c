//! The gateway: what the operator's names of access mean. It opens a [`Session`] for each run that asks for some.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::access::{
    AccessBook, AccessCall, AccessRecord, Offered, Opened, ReachLog, Reached, Redactor, SecretRef, Secrets,
};
use engine::links::{Grant, ListenAt};
use engine::{Proxies, Proxy, RunError, Secret};

use crate::budget::{Budget, Maxima};
use crate::dial::{Upstream, dial};
use crate::host::{Host, split_port};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::resolve::{Pins, Resolver};
use crate::rules::{Match, Rule, Wanted, find};
use crate::session::{Opening, Session};

/// The port inside of a sandbox at which programs find their proxy.
pub const PROXY_PORT: u16 = 3128;
/// Hosts that programs reach without the proxy: servers of their own.
const NO_PROXY: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// What one name of access means.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bundle {
    /// What it is for.
    pub about: String,
    /// What it reaches.
    pub rules: Vec<Rule>,
    /// The secrets that its runs are given.
    pub secrets: Vec<SecretGrant>,
    /// What each run may transfer.
    pub maxima: Maxima,
    /// Servers whose tools it opens. The gateway only tells them.
    pub tools: Vec<String>,
}

/// A secret as an environment variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretGrant {
    /// The variable.
    pub variable: String,
    /// Where the value is.
    pub secret: SecretRef,
    /// If there are some, only a run that reaches nothing else is given the secret.
    pub hosts: Vec<Rule>,
}

/// The parts of a gateway.
pub struct GatewayConfig {
    /// The names of access.
    pub bundles: BTreeMap<String, Bundle>,
    /// Who is asked about names.
    pub resolver: Resolver,
    /// A proxy of the operator.
    pub upstream: Option<Upstream>,
    /// Where secrets are.
    pub secrets: Secrets,
    /// Records what runs reach.
    pub log: Arc<ReachLog>,
}

/// Opens the web for runs.
pub struct Gateway {
    config: GatewayConfig,
    offered: Vec<Offered>,
}

impl Gateway {
    /// A gateway of these parts.
    pub fn new(config: GatewayConfig) -> Self {
        let offered = config.bundles.iter().map(|(name, bundle)| Offered {
            name: name.clone(),
            about: bundle.about.clone(),
            hosts: bundle.rules.iter().map(Rule::to_string).collect(),
            secrets: bundle.secrets.iter().map(|grant| grant.variable.clone()).collect(),
            tools: bundle.tools.clone(),
            tools_without_wall: Vec::new(),
        });
        Self { offered: offered.collect(), config }
    }

    /// The web of one run, without its secrets.
    pub fn session(&self, call: &AccessCall<'_>) -> Arc<Session> {
        self.session_without(call, None)
    }

    /// The same. Secrets that the redactor finds are taken out of what is recorded.
    fn session_without(&self, call: &AccessCall<'_>, redactor: Option<Arc<Redactor>>) -> Arc<Session> {
        let openings = self.bundles(call.names).map(|(name, bundle)| Opening {
            access: name.clone(),
            rules: bundle.rules.clone(),
            budget: Budget::new(bundle.maxima),
        });
        let (caller, run_id) = (call.caller.clone(), call.run_id.map(str::to_owned));
        Arc::new(Session {
            openings: openings.collect(),
            resolver: self.config.resolver,
            upstream: self.config.upstream.clone(),
            pins: Pins::default(),
            record: Arc::new(Record::new(caller, run_id, Arc::clone(&self.config.log), redactor)),
        })
    }

    fn bundles<'a>(&'a self, names: &'a [String]) -> impl Iterator<Item = (&'a String, &'a Bundle)> {
        self.config.bundles.iter().filter(|(name, _)| names.contains(name))
    }

    fn secrets(&self, call: &AccessCall<'_>) -> Result<Vec<(String, Secret)>, RunError> {
        let names = call.names;
        let reaches: Vec<&Rule> = self.bundles(names).flat_map(|(_, bundle)| &bundle.rules).collect();
        let mut secrets: Vec<(String, Secret)> = Vec::new();
        for grant in self.bundles(names).flat_map(|(_, bundle)| &bundle.secrets) {
            let is_bound = !grant.hosts.is_empty();
            if let Some(other) = reaches.iter().find(|rule| is_bound && !rule.is_within(&grant.hosts)) {
                return Err(secret_hosts(grant, &format!("reaches {other}")));
            }
            if is_bound && call.calls_tools {
                return Err(secret_hosts(grant, "calls tools of other servers"));
            }
            if secrets.iter().any(|(variable, _)| *variable == grant.variable) {
                let message = format!("two of the names of access set {}", grant.variable);
                return Err(RunError::new("secret_conflict", message).remedy("ask for one of them"));
            }
            let value = self.config.secrets.read(&grant.secret).map_err(|error| {
                tracing::error!(variable = grant.variable, reason = %error, "secret_not_read");
                RunError::new(
                    "secret_unavailable",
                    format!("the secret for {} cannot be read", grant.variable),
                )
                .remedy("ask the operator; `palisade access list` shows what is missing")
            })?;
            secrets.push((grant.variable.clone(), value));
        }
        Ok(secrets)
    }
}

/// The refusal of a secret that is bound to hosts, to a run that could pass it on elsewhere.
fn secret_hosts(grant: &SecretGrant, what: &str) -> RunError {
    let message = format!("the secret in {} is not given to a run that {what}", grant.variable);
    RunError::new("secret_hosts", message).remedy("ask for fewer names of access in one run")
}

impl AccessBook for Gateway {
    fn offered(&self) -> &[Offered] {
        &self.offered
    }

    fn open(&self, call: &AccessCall<'_>) -> Result<Opened, RunError> {
        let secrets = self.secrets(call)?;
        let redactor = Redactor::new(secrets.iter().map(|(name, secret)| (name.as_str(), secret)))?;
        let redactor = redactor.map(Arc::new);
        let session = self.session_without(call, redactor.clone());
        let rules: Vec<String> =
            session.openings.iter().flat_map(|opening| &opening.rules).map(Rule::to_string).collect();
        let record = Arc::clone(&session) as Arc<dyn AccessRecord>;
        if rules.is_empty() {
            let summary = "no host".to_owned();
            let (grants, proxies) = (Vec::new(), Proxies::default());
            return Ok(Opened { grants, proxies, secrets, redactor, summary, has_tools: false, record });
        }
        let proxy = || Some(Proxy { host: "127.0.0.1".to_owned(), port: PROXY_PORT });
        let no_proxy = NO_PROXY.map(str::to_owned).to_vec();
        let proxies = Proxies { http: proxy(), https: proxy(), no_proxy };
        let grants = vec![Grant { at: ListenAt::Loopback(PROXY_PORT), broker: session }];
        let summary = rules.join(", ");
        Ok(Opened { grants, proxies, secrets, redactor, summary, has_tools: false, record })
    }
}

impl AccessRecord for Session {
    fn reached(&self) -> Vec<Reached> {
        Self::reached(self)
    }
}

/// What `palisade access test` finds out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tested {
    /// The rule that allows it.
    pub rule: String,
    /// The addresses that would be dialled; none with an upstream proxy.
    pub addresses: Vec<String>,
}

impl Gateway {
    /// Goes through the steps of a connection without a program: the rules, the address, and the connection itself.
    pub async fn test(&self, name: &str, place: &str) -> Result<Tested, Refusal> {
        let (host, port) = split_port(place).ok_or(Refusal::BadRequest("give HOST:PORT"))?;
        let host = Host::parse(host).map_err(Refusal::BadHost)?;
        let bundle = self.config.bundles.get(name).ok_or(Refusal::HostDenied)?;
        let rules = || bundle.rules.iter().map(|rule| (rule, &()));
        let found = [Wanted::Tunnel, Wanted::Request].into_iter().find_map(|wanted| {
            match find(rules(), (&host, port), wanted) {
                Match::Allowed(rule, ()) => Some(rule),
                _ => None,
            }
        });
        let rule = found.ok_or(Refusal::HostDenied)?;
        let names = [name.to_owned()];
        let caller = engine::Caller::local();
        let (caller, names, calls_tools) = (&caller, &names, false);
        let session = self.session(&AccessCall { caller, run_id: None, sandbox: None, names, calls_tools });
        let addresses = session.addresses(&host, rule).await?;
        match &self.config.upstream {
            Some(upstream) => drop(upstream.dial(&host, port).await?),
            None => drop(dial(&addresses, port).await?),
        }
        let addresses = addresses.iter().map(ToString::to_string).collect();
        Ok(Tested { rule: rule.to_string(), addresses })
    }
}
