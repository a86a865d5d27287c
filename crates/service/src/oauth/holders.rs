//! The holders of accepted tokens, for signed file URLs: a URL names a principal and shows no token. It has the rights
//! of its caller as long as a token that this server has accepted from that caller counts.
//!
//! Only tokens that may use sandboxes are kept here, because no other one can use a file URL.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use engine::Principal;
use policy::Scope;

use super::Accepted;

/// The most holders at once. Beyond that, the one whose token expires first is forgotten.
const HOLDERS_MAX: usize = 4096;

/// Holders of tokens that count, each with its token that expires last.
#[derive(Debug, Default)]
pub(super) struct Holders(Mutex<HashMap<Principal, Accepted>>);

impl Holders {
    /// Remembers a token that was accepted.
    pub(super) fn learn(&self, accepted: &Accepted) {
        if !accepted.caller.may(Scope::Sandbox) {
            return;
        }
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get_mut(&accepted.caller.principal) {
            if known.expires < accepted.expires {
                *known = accepted.clone();
            }
            return;
        }
        if all.len() >= HOLDERS_MAX {
            let first =
                all.iter().min_by_key(|(_, known)| known.expires).map(|(principal, _)| principal.clone());
            first.map(|first| all.remove(&first));
        }
        all.insert(accepted.caller.principal.clone(), accepted.clone());
    }

    /// The holder, if its token still counts.
    pub(super) fn get(&self, principal: &Principal, now: SystemTime) -> Option<Accepted> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.get(principal)?.expires <= now {
            all.remove(principal);
            return None;
        }
        all.get(principal).cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use engine::Caller;
    use policy::Scopes;

    use super::*;

    fn accepted(name: &str, scope: Scope, expires_s: u64) -> Accepted {
        let principal = Principal::new(name).unwrap();
        let caller = Caller { principal, scopes: Scopes::of(&[scope]), ..Caller::local() };
        Accepted { caller, expires: SystemTime::UNIX_EPOCH + Duration::from_secs(expires_s) }
    }

    #[test]
    fn a_holder_is_known_until_its_last_token_expires() {
        let holders = Holders::default();
        let (a, at) = (Principal::new("a").unwrap(), |s| SystemTime::UNIX_EPOCH + Duration::from_secs(s));
        holders.learn(&accepted("a", Scope::Run, 900));
        assert_eq!(holders.get(&a, at(0)), None, "it may not use sandboxes");
        holders.learn(&accepted("a", Scope::Sandbox, 100));
        holders.learn(&accepted("a", Scope::Admin, 200));
        holders.learn(&accepted("a", Scope::Sandbox, 50));
        assert_eq!(holders.get(&a, at(199)), Some(accepted("a", Scope::Admin, 200)));
        assert_eq!(holders.get(&a, at(200)), None);
        assert_eq!(holders.get(&Principal::new("b").unwrap(), at(0)), None);
    }

    #[test]
    fn holders_are_bounded() {
        let holders = Holders::default();
        for number in 0..=HOLDERS_MAX {
            holders.learn(&accepted(&format!("p{number}"), Scope::Sandbox, 10 + number as u64));
        }
        let known = |number: usize| {
            holders.get(&Principal::new(&format!("p{number}")).unwrap(), SystemTime::UNIX_EPOCH).is_some()
        };
        assert!(!known(0) && known(1) && known(HOLDERS_MAX));
    }
}
