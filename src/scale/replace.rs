//! At the least size a Machine that never became a Node is replaced: it is deleted by name and the size stays, so that its
//! MachineSet makes another (kubernetes/autoscaler#10059). Which one, and when, is a rule of
//! [`crate::nodegroup::replacement`]; this writes it. Nothing that has a Node goes here.
//!
//! When the last replacement was stands in an annotation of the group, written before the deletion by a patch that tests
//! what was there: so of two copies of the program only one goes on, a restart forgets nothing, and a copy that dies in
//! between has spent the interval on a Machine that is deleted the next time it is named. Creation times of Machines
//! alone would tell when the last one was, but not how many there have been.

use std::sync::Arc;

use jiff::Timestamp;

use super::{Command, ScaleError, api::CallError, events::Happening};
use crate::{
    capi::Machine,
    index::ScaleView,
    nodegroup::{
        instance,
        replacement::{self, Replaced, Replacement},
    },
};

/// What a request does that names Machines without a Node at the least size.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AtMinSize {
    /// One of them is replaced from time to time.
    #[default]
    Replace,
    /// It is refused.
    Refuse,
}

impl Command {
    /// Answers a request that `refusal` says is below the least size: one of its Machines is replaced where that is
    /// possible and time. `others` is how much it names that isn't a Machine.
    pub(super) async fn replace_one(
        &self,
        machines: &[Arc<Machine>],
        others: usize,
        view: &ScaleView,
        refusal: ScaleError,
    ) -> Result<(), ScaleError> {
        let all_replaceable = others == 0 && machines.iter().all(|machine| replacement::is_replaceable(machine));
        if self.inner.options.at_min_size == AtMinSize::Refuse || !all_replaceable {
            return Err(refusal);
        }
        let known: Option<Replaced> = view.replaced.as_deref().and_then(|text| text.parse().ok());
        let candidates = machines.iter().map(AsRef::as_ref);
        let Some(machine) = replacement::first(candidates, known.as_ref()) else { return Err(refusal) };
        let joined = self.index().youngest_with_node(&self.id);
        let replaced = match replacement::decide(known.as_ref(), &machine.meta.uid, joined, Timestamp::now()) {
            Replacement::Begin(replaced) => {
                self.write_replaced(view, &replaced).await?;
                replaced
            }
            Replacement::Continue => known.ok_or_else(|| refusal.clone())?,
            Replacement::Wait(until) => {
                return Err(ScaleError::FailedPrecondition(format!(
                    "{refusal}; a Machine that never became a Node was replaced not long ago, and the next can be at \
                     {until:.0}"
                )));
            }
        };
        self.delete_replaced(machine).await?;
        match machines.len() - 1 {
            0 => Ok(()),
            others => Err(ScaleError::FailedPrecondition(format!(
                "{refusal}; Machine {} is replaced, and {others} more have to wait: the next can be replaced at {:.0}",
                machine.meta.key.name,
                replaced.next()
            ))),
        }
    }

    /// Writes that a Machine is about to be replaced, if nobody has written of another one since.
    async fn write_replaced(&self, view: &ScaleView, replaced: &Replaced) -> Result<(), ScaleError> {
        let uid = self.index().uid(&self.id);
        let uid = uid.ok_or_else(|| ScaleError::NotFound(format!("{}: the object is gone", self.id)))?;
        let written = self.api().write_replaced(&self.id, &uid, view.replaced.as_deref(), &replaced.to_string()).await;
        self.inner.metrics.count_write("replaced", if written.is_ok() { "ok" } else { "error" });
        written.map_err(|error| self.failed(&error))
    }

    async fn delete_replaced(&self, machine: &Machine) -> Result<(), ScaleError> {
        let deleted = self.api().delete_unchanged(machine).await;
        self.inner.metrics.count_write("delete", if deleted.is_ok() { "ok" } else { "error" });
        let name = &machine.meta.key.name;
        match deleted {
            Ok(()) => {
                let why = instance::of_machine(machine, None).error;
                let why = why.map_or_else(|| "it was given up".to_owned(), |error| error.message);
                tracing::info!(group = %self.id, machine = %name, "Machine is replaced at the least size: {why}");
                self.tell(Happening::replaced(name, &why));
                Ok(())
            }
            // Somebody else has deleted it.
            Err(CallError::Missing(_)) => Ok(()),
            Err(error) => Err(self.failed(&error)),
        }
    }
}
