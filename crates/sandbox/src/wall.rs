//! Facts about walls: which kernel a program behind each of them reaches. This is the order of their strength.
//!
//! The names are those of [`crate::Backend::name`]. A wall that is not in the table counts as one that shares the host's
//! kernel, so a wall is never taken for stronger than it is known to be.

use std::fmt;

/// The kernel that programs behind a wall reach. A later variant is stronger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Kernel {
    /// The host's.
    #[default]
    Shared,
    /// One of the sandbox's own, in front of the host's.
    Own,
}

/// A wall that Palisade knows by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WallFacts {
    /// Its name.
    pub name: &'static str,
    /// The kernel behind it.
    pub kernel: Kernel,
}

/// The demand for any wall with a kernel of its own, in place of a wall's name.
pub const OWN_KERNEL: &str = "own_kernel";
/// The demand for any wall at all, in place of a wall's name.
pub const SHARED_KERNEL: &str = "shared_kernel";

/// The known walls.
pub const WALLS: [WallFacts; 6] = [
    WallFacts { name: "native", kernel: Kernel::Shared },
    WallFacts { name: "runc", kernel: Kernel::Shared },
    WallFacts { name: "crun", kernel: Kernel::Shared },
    WallFacts { name: "docker", kernel: Kernel::Shared },
    WallFacts { name: "podman", kernel: Kernel::Shared },
    WallFacts { name: "gvisor", kernel: Kernel::Own },
];

impl Kernel {
    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Own => "own",
        }
    }

    /// The kernel behind the wall of that name.
    pub fn of_wall(name: &str) -> Self {
        WALLS.iter().find(|wall| wall.name == name).map_or(Self::Shared, |wall| wall.kernel)
    }

    /// The least kernel that a demand names: a wall's name, `own_kernel` or `shared_kernel`.
    pub fn demanded(text: &str) -> Option<Self> {
        match text {
            OWN_KERNEL => Some(Self::Own),
            SHARED_KERNEL => Some(Self::Shared),
            name => WALLS.iter().find(|wall| wall.name == name).map(|wall| wall.kernel),
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_wall_is_not_taken_for_a_strong_one() {
        assert_eq!(Kernel::of_wall("gvisor"), Kernel::Own);
        for weaker in ["native", "runc", "docker", "unheard-of", ""] {
            assert_eq!(Kernel::of_wall(weaker), Kernel::Shared, "{weaker}");
        }
        assert!(Kernel::Own > Kernel::Shared);
    }

    #[test]
    fn a_demand_is_a_name_or_a_kernel() {
        assert_eq!(Kernel::demanded(OWN_KERNEL), Some(Kernel::Own));
        assert_eq!(Kernel::demanded("crun"), Some(Kernel::Shared));
        assert_eq!(Kernel::demanded("strong"), None);
    }
}
