//! Ids of node groups: `<Kind>/<namespace>/<name>`, the same before and after a restart.

use arcstr::ArcStr;
use std::fmt;

use crate::capi::{Meta, ObjectKey, ScalableKind};

/// The id of a node group.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct GroupId {
    /// The kind of the object.
    pub kind: ScalableKind,
    /// Its namespace and name.
    pub key: ObjectKey,
}

impl GroupId {
    /// Returns the id of an object.
    pub fn new(kind: ScalableKind, key: ObjectKey) -> Self {
        Self { kind, key }
    }

    /// Returns the id of the object with this identity.
    pub fn of(kind: ScalableKind, meta: &Meta) -> Self {
        Self::new(kind, meta.key.clone())
    }

    /// Parses an id. `None` unless the text has three parts, each as a name of an object may be, and a known kind.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let (kind, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() || !may_be_name(namespace) || !may_be_name(name) {
            return None;
        }
        Some(Self::new(ScalableKind::parse(kind)?, ObjectKey::new(ArcStr::from(namespace), ArcStr::from(name))))
    }
}

/// Returns true for a text that an object may have as its namespace or name. No other object is read.
fn may_be_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= Meta::LONGEST_TEXT && text.bytes().all(|byte| byte.is_ascii_graphic())
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.kind, self.key.namespace, self.key.name)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("MachineDeployment/team-a/workers")]
    #[case("MachineSet/team-a/workers")]
    #[case("MachinePool/team-a/workers")]
    fn an_id_is_read_as_it_is_written(#[case] text: &str) {
        assert_eq!(GroupId::parse(text).map(|id| id.to_string()).as_deref(), Some(text));
    }

    #[rstest]
    #[case("")]
    #[case("workers")]
    #[case("MachineDeployment/team-a")]
    #[case("MachineDeployment/team-a/workers/more")]
    #[case("MachineDeployment//workers")]
    #[case("MachineDeployment/team-a/")]
    #[case("machinedeployment/team-a/workers")]
    #[case("Machine/team-a/workers")]
    #[case("MachineDeployment/team-a/work ers")]
    #[case("MachineDeployment/team-a/w\u{202e}")]
    fn any_other_text_is_no_id(#[case] text: &str) {
        assert_eq!(GroupId::parse(text), None);
    }

    #[test]
    fn an_id_longer_than_names_of_objects_is_none() {
        let id = |length: usize| [format!("{}/b", "a".repeat(length)), format!("a/{}", "b".repeat(length))];
        for text in id(Meta::LONGEST_TEXT) {
            assert!(GroupId::parse(&format!("MachineDeployment/{text}")).is_some());
        }
        for text in [id(Meta::LONGEST_TEXT + 1), id(1 << 20)].concat() {
            assert_eq!(GroupId::parse(&format!("MachineDeployment/{text}")), None, "{} bytes", text.len());
        }
    }
}
