//! Converts groups and instances to the protocol.

use rules::{Instance, InstanceState};

use index::PinnedGroup;
use proto::instance_status::InstanceState as WireState;

/// The classes of errors: capacity or quota has run out, or anything else.
const OUT_OF_RESOURCES: i32 = 1;
const OTHER: i32 = 99;

pub(super) fn group_to_wire(group: &PinnedGroup) -> proto::NodeGroup {
    let (min, max) = (group.bounds.min, group.bounds.max);
    proto::NodeGroup {
        id: group.text.to_string(),
        min_size: min,
        max_size: max,
        debug: format!("{} (min: {min}, max: {max})", group.text),
    }
}

pub(super) fn instance_to_wire(instance: Instance) -> proto::Instance {
    let state = match instance.state {
        InstanceState::Creating => WireState::InstanceCreating,
        InstanceState::Running => WireState::InstanceRunning,
        InstanceState::Deleting => WireState::InstanceDeleting,
    };
    let error = instance.error.filter(|error| error.sent);
    let error_info = error.map(|error| proto::InstanceErrorInfo {
        error_code: error.code.into_owned(),
        error_message: error.message,
        instance_error_class: if error.out_of_resources { OUT_OF_RESOURCES } else { OTHER },
    });
    proto::Instance {
        id: instance.id,
        status: Some(proto::InstanceStatus { instance_state: state.into(), error_info }),
    }
}
