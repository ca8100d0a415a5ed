//! The group and the failures of the fake.

use super::*;
use crate::{
    replacement::Replaced,
    steps::{Calls, FailedCall, Unmarked},
};

/// A version of the group.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::tests) struct Version {
    pub(in crate::tests) generation: i64,
    pub(in crate::tests) replicas: i32,
    pub(in crate::tests) log: DeletionLog,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::tests) struct Failed(pub(in crate::tests) Failure);

impl FailedCall for Failed {
    fn failure(&self) -> Failure {
        self.0
    }
}

impl Calls for Text {
    type Group = Version;
    type Version = u32;
    type Writer = u32;
    type Failed = Failed;
    type Unreadable = &'static str;
    type NotScalable = &'static str;
    type Rollout = &'static str;
    type Note = Option<Replaced<Uid>>;
    type Unread = &'static str;

    fn unmarked(_: &String, why: Unmarked<Self>) -> Failed {
        Failed(match why {
            Unmarked::NotOfGroup => Failure::Unknown,
            Unmarked::NotInLog => Failure::Conflict,
            Unmarked::Unreadable(_) => Failure::Final,
        })
    }
}

impl crate::steps::Group<Text> for Version {
    fn spec(&self) -> Spec<'_, Uid> {
        const UID: &Uid = &Uid::new();
        Spec { uid: UID, generation: self.generation, replicas: self.replicas }
    }

    fn log(&self) -> Result<DeletionLog, &'static str> {
        Ok(self.log.clone())
    }

    fn is_unchanged_since(&self, other: &Self) -> bool {
        (self.generation, &self.log) == (other.generation, &other.log)
    }
}
