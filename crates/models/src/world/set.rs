//! Sets of Machines.

/// The maximum number of Machines, replacements included.
pub const SLOTS: usize = 7;

/// A set of Machines, one bit each.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq, PartialOrd)]
pub struct Set(pub u8);

impl Set {
    /// Creates the set of one Machine.
    #[must_use]
    pub fn one(machine: usize) -> Self {
        Self(1 << machine)
    }
    /// Creates the set of the Machines for which `is_in` returns true.
    pub fn of(is_in: impl Fn(usize) -> bool) -> Self {
        (0..SLOTS).filter(|machine| is_in(*machine)).fold(Self(0), |set, machine| set | Self::one(machine))
    }
    /// Returns true if the Machine is in the set.
    #[must_use]
    pub fn has(self, machine: usize) -> bool {
        self.0 & (1 << machine) != 0
    }
    /// Returns true if the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// Returns the first `count` Machines of the set.
    #[must_use]
    pub fn first(self, count: i8) -> Self {
        let count = usize::try_from(count).unwrap_or_default();
        self.iter().take(count).fold(Self(0), |set, machine| set | Self::one(machine))
    }
    /// Returns the number of Machines.
    #[must_use]
    pub fn len(self) -> i8 {
        i8::try_from(self.0.count_ones()).unwrap_or(i8::MAX)
    }
    /// Returns the Machines that aren't in `other`.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
    /// Iterates over the Machines.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..SLOTS).filter(move |machine| self.has(*machine))
    }
}

impl std::ops::BitOr for Set {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl std::ops::BitAnd for Set {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl std::fmt::Display for Set {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.iter().map(name).collect();
        formatter.write_str(&names.join(", "))
    }
}

/// Returns the name of a Machine in traces: a, b, c.
#[must_use]
pub fn name(machine: usize) -> String {
    char::from_digit(u32::try_from(machine).unwrap_or_default() + 10, 36).map(String::from).unwrap_or_default()
}
