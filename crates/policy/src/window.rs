//! Windows of limits: calendar minutes, hours and days in UTC.

/// How long a counter counts before it begins again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Window {
    /// From one full minute to the next.
    Minute,
    /// From one full hour to the next.
    Hour,
    /// From midnight to midnight, UTC.
    Day,
}

impl Window {
    /// All windows.
    pub const ALL: [Self; 3] = [Self::Minute, Self::Hour, Self::Day];

    /// The window with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|window| window.name() == name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }

    /// Its length.
    pub fn seconds(self) -> u64 {
        match self {
            Self::Minute => 60,
            Self::Hour => 3600,
            Self::Day => 86_400,
        }
    }

    /// The start of the window that contains this moment, in seconds since 1970. UTC has no leap seconds here.
    pub fn start(self, unix_s: u64) -> u64 {
        unix_s - unix_s % self.seconds()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_aligned_to_the_calendar() {
        let moment = 1_794_858_661; // 2026-11-16T19:51:01Z
        assert_eq!(Window::Minute.start(moment), 1_794_858_660);
        assert_eq!(Window::Hour.start(moment), 1_794_855_600);
        assert_eq!(Window::Day.start(moment), 1_794_787_200);
        for window in Window::ALL {
            assert_eq!(Window::parse(window.name()), Some(window));
            assert_eq!(window.start(window.start(moment)), window.start(moment));
        }
    }
}
