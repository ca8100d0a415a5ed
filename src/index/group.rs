//! One group as held: its object, what the rules say of it, and what it goes on answering while it is
//! pinned. Nothing here looks at another object.

use std::{sync::Arc, time::Instant};

use prost::bytes::Bytes;

use super::version::{GroupVersion, Versions};
use crate::{
    capi::{KindRef, Node, ObjectKey, ScalableResource},
    nodegroup::{Definition, LeftOut, Problem},
};

/// Whether an object is a group now.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) enum Standing {
    /// There is no such object.
    #[default]
    Gone,
    /// It is a group.
    Live,
    /// It is none, and why.
    LeftOut(LeftOut, Vec<Problem>),
    /// It can't scale from zero as far as is known, and its infrastructure template hasn't been read yet.
    Waiting,
    /// The object doesn't decode.
    Undecodable(Problem),
}

/// What a group answers: the rules' definition and the encoded template.
#[derive(Debug)]
pub struct Served {
    /// What the rules made of the objects.
    pub definition: Definition,
    /// The template as an encoded core/v1 Node, shared by all answers. `None`: no template is known.
    pub template: Option<Bytes>,
}

/// A MachineDeployment, MachineSet or MachinePool: group or not.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// The object; the last one that did while it doesn't decode; `None` when it is gone or never decoded.
    pub(super) object: Option<Arc<ScalableResource>>,
    /// Whether it is a group now.
    pub(super) standing: Standing,
    /// What it answers; kept when it stops being a group, until the next Refresh.
    pub(super) served: Option<Arc<Served>>,
    /// The kind of infrastructure template it makes this program watch.
    pub(super) wants: Option<KindRef>,
    /// The first Machine of the group, by name, that has a Node, with this Node; of a MachinePool the first
    /// Node, under its own key.
    pub(super) sample: Option<(ObjectKey, Arc<Node>)>,
    /// The object's versions, or those it had last.
    pub(super) versions: Versions,
}

impl Group {
    /// Takes a new version of the object.
    pub(super) fn set_object(&mut self, object: Arc<ScalableResource>) {
        self.versions.show(GroupVersion::of(&object));
        self.object = Some(object);
    }

    /// The size asked for: what was written last, else what the object says, else what it said last.
    pub(super) fn size(&self, now: Instant) -> i32 {
        self.versions.size(now)
    }

    /// Whether there is an object, be it one that doesn't decode.
    pub(super) fn is_known(&self) -> bool {
        self.object.is_some() || matches!(self.standing, Standing::Undecodable(_))
    }

    /// Whether it is a group now.
    pub(super) fn is_live(&self) -> bool {
        self.standing == Standing::Live
    }
}
