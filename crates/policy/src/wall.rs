//! Which wall a call gets: the operator's settings and policy decide, and a caller may only raise it.
//!
//! [`choose_wall`] is pure. The engine calls it with the walls that it has before it looks for the runtime of a call.

use sandbox::{Kernel, OWN_KERNEL};

use crate::Denial;

/// The longest part of an unknown name that an error repeats.
const NAME_CHARACTERS_MAX: usize = 64;

/// What a call demands of its wall.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WallDemand {
    /// The caller's own wish: the name of a wall, or `own_kernel`.
    pub wanted: Option<String>,
    /// The lists of the policy that binds the caller. A wall must satisfy each of them.
    pub lists: Vec<Vec<String>>,
}

impl WallDemand {
    /// A demand for the wall of that name.
    pub fn named(name: &str) -> Self {
        Self { wanted: Some(name.to_owned()), lists: Vec::new() }
    }

    /// Whether the policy allows that wall.
    fn allows(&self, name: &str) -> bool {
        self.lists.iter().all(|list| list.iter().any(|demand| satisfies(name, demand)))
    }
}

/// Whether a wall is the one that a demand names, or has the kernel that it names.
fn satisfies(name: &str, demand: &str) -> bool {
    name == demand || (demand == OWN_KERNEL && Kernel::of_wall(name) == Kernel::Own)
}

/// Chooses the wall of a call among those of the server, the default first.
///
/// Without a wish it is the default wall, if policy and `least` allow it, and otherwise the first wall that they allow. A
/// wish may name another allowed wall that is at least as strong.
pub fn choose_wall<'w>(walls: &[&'w str], least: Kernel, demand: &WallDemand) -> Result<&'w str, Denial> {
    let is_allowed = |name: &&&str| Kernel::of_wall(name) >= least && demand.allows(name);
    let allowed: Vec<&'w str> = walls.iter().filter(is_allowed).copied().collect();
    if let Some(wanted) = &demand.wanted
        && wanted != OWN_KERNEL
        && !walls.contains(&wanted.as_str())
    {
        return Err(unknown(wanted, walls));
    }
    let Some(usual) = allowed.first().copied() else { return Err(none_left(walls, least, demand)) };
    let Some(wanted) = demand.wanted.as_deref() else { return Ok(usual) };
    let fitting = allowed.iter().copied().find(|name| satisfies(name, wanted));
    match fitting {
        Some(chosen) if Kernel::of_wall(chosen) >= Kernel::of_wall(usual) => Ok(chosen),
        Some(chosen) => Err(Denial {
            code: "wall_too_weak",
            reason: format!(
                "the wall `{chosen}` is weaker than `{usual}`, which this call gets without asking"
            ),
            remedy: "leave the wall out; a caller can only ask for a stronger one".to_owned(),
        }),
        None => Err(Denial {
            code: "wall_denied",
            reason: format!("this call may not have the wall `{wanted}`; it may have {}", allowed.join(", ")),
            remedy: format!("leave the wall out for `{usual}`, or ask the operator"),
        }),
    }
}

fn unknown(wanted: &str, walls: &[&str]) -> Denial {
    let shown: String = wanted.chars().take(NAME_CHARACTERS_MAX).collect();
    let known = walls.join(", ");
    Denial {
        code: "unknown_wall",
        reason: format!("there is no wall `{shown}` on this server; it has {known}"),
        remedy: format!("use one of {known}, or none for the default"),
    }
}

/// The refusal where the demands of the operator leave no wall.
fn none_left(walls: &[&str], least: Kernel, demand: &WallDemand) -> Denial {
    let mut demands = demand
        .lists
        .iter()
        .map(|list| format!("the policy demands {}", list.join(" or ")))
        .collect::<Vec<_>>();
    if least == Kernel::Own {
        demands.insert(0, format!("the configuration demands {OWN_KERNEL}"));
    }
    Denial {
        code: "wall_denied",
        reason: format!(
            "no wall of this server will do: {}; it has {}",
            demands.join(", "),
            walls.join(", ")
        ),
        remedy: "ask the operator to enable such a wall (`[wall] allowed`)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALLS: [&str; 3] = ["native", "runc", "gvisor"];

    fn chosen(least: Kernel, wanted: Option<&str>, lists: &[&[&str]]) -> Result<&'static str, &'static str> {
        let lists = lists.iter().map(|list| list.iter().map(|one| (*one).to_owned()).collect()).collect();
        let demand = WallDemand { wanted: wanted.map(str::to_owned), lists };
        choose_wall(&WALLS, least, &demand).map_err(|denial| denial.code)
    }

    #[test]
    fn the_default_is_given_unless_more_is_demanded() {
        assert_eq!(chosen(Kernel::Shared, None, &[]), Ok("native"));
        assert_eq!(chosen(Kernel::Own, None, &[]), Ok("gvisor"));
        assert_eq!(chosen(Kernel::Shared, None, &[&["own_kernel"]]), Ok("gvisor"));
        assert_eq!(chosen(Kernel::Shared, None, &[&["gvisor", "runc"]]), Ok("runc"));
    }

    #[test]
    fn a_caller_can_only_raise_it() {
        assert_eq!(chosen(Kernel::Shared, Some("runc"), &[]), Ok("runc"), "as strong as the default");
        assert_eq!(chosen(Kernel::Shared, Some("own_kernel"), &[]), Ok("gvisor"));
        assert_eq!(chosen(Kernel::Own, Some("native"), &[]), Err("wall_denied"));
        assert_eq!(chosen(Kernel::Shared, Some("native"), &[&["own_kernel"]]), Err("wall_denied"));
        let strong_first = WallDemand::named("native");
        let denial = choose_wall(&["gvisor", "native"], Kernel::Shared, &strong_first).unwrap_err();
        assert_eq!(denial.code, "wall_too_weak");
    }

    #[test]
    fn an_unknown_wall_is_answered_with_the_names_there_are() {
        let denial = choose_wall(&WALLS, Kernel::Shared, &WallDemand::named("vm")).unwrap_err();
        assert_eq!(
            (denial.code, denial.reason.as_str()),
            ("unknown_wall", "there is no wall `vm` on this server; it has native, runc, gvisor")
        );
        let long = WallDemand::named(&"x".repeat(9999));
        assert!(choose_wall(&WALLS, Kernel::Shared, &long).unwrap_err().reason.len() < 200);
    }

    #[test]
    fn every_list_of_the_policy_must_be_satisfied() {
        assert_eq!(chosen(Kernel::Shared, None, &[&["own_kernel"], &["native", "gvisor"]]), Ok("gvisor"));
        assert_eq!(chosen(Kernel::Shared, None, &[&["own_kernel"], &["native"]]), Err("wall_denied"));
        assert_eq!(chosen(Kernel::Shared, Some("own_kernel"), &[&["native", "runc"]]), Err("wall_denied"));
        assert_eq!(chosen(Kernel::Shared, None, &[&[]]), Err("wall_denied"), "an empty list allows nothing");
    }

    #[test]
    fn no_demand_gives_a_wall_below_the_least() {
        for wanted in [None, Some("native"), Some("runc"), Some("gvisor"), Some("own_kernel"), Some("?")] {
            for lists in [&[][..], &[&["native"][..]][..], &[&["own_kernel"][..]][..]] {
                if let Ok(name) = chosen(Kernel::Own, wanted, lists) {
                    assert_eq!(Kernel::of_wall(name), Kernel::Own);
                }
            }
        }
    }
}
