//! A kind whose version isn't chosen yet.

use std::fmt;

use arcstr::ArcStr;

use super::InfrastructureRef;

/// A group and a kind, without a version.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct KindRef {
    /// The API group.
    pub group: ArcStr,
    /// The kind.
    pub kind: ArcStr,
}

impl fmt::Display for KindRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind, self.group)
    }
}

impl From<&InfrastructureRef> for KindRef {
    fn from(reference: &InfrastructureRef) -> Self {
        Self { group: reference.group.clone(), kind: reference.kind.clone() }
    }
}
