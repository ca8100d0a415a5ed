//! Hooks, which hold the deletion of Machines by an annotation and are removed after a while.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    fate::{Hook, HookPoint},
    write::Op,
};
use crate::{
    clock::after,
    controllers::{
        keys,
        object::{Object as _, annotation},
        plan::Side,
    },
};

impl Hook {
    fn annotation(self) -> String {
        let prefix = match self.at {
            HookPoint::PreDrain => keys::PRE_DRAIN_HOOK,
            HookPoint::PreTerminate => keys::PRE_TERMINATE_HOOK,
        };
        format!("{prefix}/simulated")
    }

    /// Returns the next write on a Machine, if one is due, and the time of the next reconcile. `since` is when its
    /// deletion was first seen.
    pub(super) fn plan(
        self,
        machine: &Value,
        since: &mut Option<Timestamp>,
        now: Timestamp,
    ) -> (Option<Op>, Option<Timestamp>) {
        let name = self.annotation();
        let is_on = machine.annotation(&name).is_some();
        let write = |value: Value| {
            let mut body = json!({});
            body.set(&annotation(&name), value);
            Op::patch(Side::Management, machine, body)
        };
        if !machine.deleting() {
            return ((!is_on).then(|| write(json!("simulated"))), None);
        }
        let due = after(*since.get_or_insert(now), self.held);
        if now < due {
            return (None, Some(due));
        }
        (is_on.then(|| write(Value::Null)), None)
    }
}
