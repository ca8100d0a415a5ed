//! The architectures that can be the default of a group's future Nodes.

use std::{fmt, str::FromStr};

use thiserror::Error;

use crate::named_enum;

named_enum! {
    /// An architecture that can be the default, as in the label `kubernetes.io/arch`.
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub enum Architecture {
        /// x86, 64 bits.
        #[default]
        Amd64 = "amd64",
        /// ARM, 64 bits.
        Arm64 = "arm64",
        /// POWER, little-endian.
        Ppc64le = "ppc64le",
        /// IBM Z.
        S390x = "s390x",
    }
}

/// The error for a text that is no supported architecture.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("architecture {0:?} isn't known: it must be amd64, arm64, ppc64le or s390x")]
pub struct UnknownArchitecture(String);

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Architecture {
    type Err = UnknownArchitecture;

    fn from_str(text: &str) -> Result<Self, UnknownArchitecture> {
        Self::ALL
            .into_iter()
            .find(|architecture| architecture.as_str() == text)
            .ok_or_else(|| UnknownArchitecture(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("amd64", Some(Architecture::Amd64))]
    #[case("arm64", Some(Architecture::Arm64))]
    #[case("ppc64le", Some(Architecture::Ppc64le))]
    #[case("s390x", Some(Architecture::S390x))]
    #[case("AMD64", None)]
    #[case("riscv64", None)]
    #[case("", None)]
    fn the_default_arch_is_one_of_four(#[case] text: &str, #[case] expected: Option<Architecture>) {
        assert_eq!(text.parse().ok(), expected);
        if expected.is_none() {
            let message = text.parse::<Architecture>().unwrap_err().to_string();
            assert!(message.contains("amd64, arm64, ppc64le or s390x"), "{message}");
        }
    }
}
