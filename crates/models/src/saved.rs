//! The commands that copies hold, each with the calls that it waits for. Each distinct command is stored once and
//! identified by a number, so that a state is small and easily compared.

use std::{
    cell::RefCell,
    collections::HashMap,
    fmt::{self, Write as _},
    hash::{BuildHasher as _, Hash as _, Hasher},
    rc::Rc,
};

use delete_rule::steps::{self, Carry, Decrease, Deletion, Effect, Now, Outcome, Resize, Steps};
use foldhash::fast::FixedState;

use crate::{small::Small, variant::Variant};

pub(crate) type Call = steps::Call<Small>;

/// A command of the delete-rule crate.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    Delete(Box<Deletion<Small, Variant>>),
    Decrease(Decrease<Small, Variant>),
    Increase(Resize<Small, Variant>),
    /// A finisher that carries on with wanted entries.
    CarryOn(Carry<Small, Variant>),
}

impl Steps<Small> for Command {
    fn next(&mut self, now: &impl Now<Small>) -> Vec<Call> {
        match self {
            Self::Delete(steps) => steps.next(now),
            Self::Decrease(steps) => steps.next(now),
            Self::Increase(steps) => steps.next(now),
            Self::CarryOn(steps) => steps.next(now),
        }
    }

    fn took(&mut self, outcome: Outcome<Small>) {
        match self {
            Self::Delete(steps) => steps.took(outcome),
            Self::Decrease(steps) => steps.took(outcome),
            Self::Increase(steps) => steps.took(outcome),
            Self::CarryOn(steps) => steps.took(outcome),
        }
    }

    fn effects(&mut self) -> Vec<Effect<Small>> {
        match self {
            Self::Delete(steps) => steps.effects(),
            Self::Decrease(steps) => steps.effects(),
            Self::Increase(steps) => steps.effects(),
            Self::CarryOn(steps) => steps.effects(),
        }
    }
}

/// A command, and the calls that it waits for.
#[derive(Clone, Debug)]
pub(crate) struct SavedCommand {
    pub(crate) command: Command,
    pub(crate) calls: Vec<Call>,
}

/// All distinct commands so far.
#[derive(Default)]
struct All {
    by_print: HashMap<u64, u32, FixedState>,
    held: Vec<Rc<SavedCommand>>,
}

thread_local! {
    static ALL: RefCell<All> = RefCell::default();
}

impl SavedCommand {
    /// Returns the number of this command, in a search of a variant.
    pub(crate) fn number(self, variant: &Variant) -> u32 {
        let mut print = Print(FixedState::with_seed(4).build_hasher());
        variant.hash(&mut print.0);
        // Writing to a hasher never fails.
        let _ = write!(print, "{self:?}");
        ALL.with_borrow_mut(|all| {
            let next = u32::try_from(all.held.len() + 1).unwrap_or(u32::MAX);
            let number = *all.by_print.entry(print.0.finish()).or_insert(next);
            if number == next {
                all.held.push(Rc::new(self));
            }
            number
        })
    }

    /// Returns true if a caller waits for the command of a number.
    pub(crate) fn has_caller(number: u32) -> bool {
        Self::of(number).is_some_and(|held| !matches!(held.command, Command::CarryOn(_)))
    }

    /// Returns the command of a number.
    pub(crate) fn of(number: u32) -> Option<Rc<Self>> {
        let place = usize::try_from(number).ok()?.checked_sub(1)?;
        ALL.with_borrow(|all| all.held.get(place).cloned())
    }
}

/// A writer that hashes the text.
struct Print<H>(H);

impl<H: Hasher> fmt::Write for Print<H> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}
