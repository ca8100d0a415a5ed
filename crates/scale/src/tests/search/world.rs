//! A small world: one group, its Machines, and Cluster API's controllers, whose views lag. It answers calls, lets
//! everybody but the program act, and judges what becomes of Machines.

/// The maximum number of Machines, replacements included.
pub(super) const SLOTS: usize = 7;
/// The number of versions that the MachineSet controller may see.
const LAG: usize = 3;
/// What bounds a search: the group at the beginning, what is possible, and, from `deletes` on, how often something may
/// happen. `bare`: the group is a MachineSet without a MachineDeployment. `lags`: the controller may see a smaller size
/// before the deletions that preceded it. `prompt`: no Machine is gone before its smaller size is seen, unless the program
/// takes five seconds. `join`: a DeleteNodes may come while another one deletes. `hangs`: calls of a copy have no answer
/// for five seconds, or until it does something else.
const NAMES: &str = "nodes copies batch bare lags prompt join deletes crashes lost-answers refusals hangs \
                     foreign-deletes joins";

/// A set of Machines, one bit each.
pub(super) type Set = u8;

pub(super) fn one(machine: usize) -> Set {
    1 << machine
}

pub(super) fn each(set: Set) -> impl Iterator<Item = usize> {
    (0..SLOTS).filter(move |machine| set & one(*machine) != 0)
}

fn position(name: &str) -> usize {
    NAMES.split(' ').position(|known| known == name).unwrap()
}

/// The bounds of a search, or what is left of them.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Bounds([u8; 14]);

impl Bounds {
    /// Parses a text such as `--nodes 3 --deletes 2`. Without words about it there are two copies, and batches of one.
    pub(super) fn parse(text: &str) -> Self {
        let mut bounds = Self([0; 14]);
        for part in ["copies 2", "batch 1"].into_iter().chain(text.split("--").skip(1)).map(str::trim) {
            let (name, number) = part.split_once(' ').unwrap_or((part, "1"));
            bounds.0[position(name)] = number.parse().unwrap();
        }
        bounds
    }

    pub(super) fn of(&self, name: &str) -> usize {
        self.0[position(name)].into()
    }

    /// Returns true if one of these Machines isn't there at the beginning.
    fn is_later(&self, machines: Set) -> bool {
        machines >> (self.of("nodes")) != 0
    }
}

/// The objects as watches and answers show them.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Shown {
    pub(super) alive: Set,
    pub(super) deleting: Set,
    pub(super) gone: Set,
    pub(super) with_node: Set,
    /// Those in the phase `Deleting`.
    pub(super) seen: Set,
    pub(super) versions: [u8; SLOTS],
    pub(super) size: usize,
    pub(super) version: usize,
    /// In an answer, the number of the size's field manager among those of the copy.
    pub(super) writer: Option<usize>,
}

impl Shown {
    pub(super) fn there(&self) -> Set {
        self.alive | self.deleting
    }

    /// Returns these Machines alone.
    fn only(&self, machines: Set) -> Self {
        let mut only = Self { size: 0, version: 0, ..*self };
        let Self { alive, deleting, gone, with_node, seen, .. } = &mut only;
        for set in [alive, deleting, gone, with_node, seen] {
            *set &= machines;
        }
        each(!machines).for_each(|other| only.versions[other] = 0);
        only
    }
}

/// A DeleteNodes: the Machines that it names, and those of them that it names as ones without a Node.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Command(pub(super) Set, pub(super) Set);

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) enum Call {
    /// The sizes from and to, and the number of the field manager among those of the copy; `None` for a dry run.
    Size(usize, usize, Option<usize>),
    /// The Machine and its version, and true for a dry run.
    Delete(usize, Option<u8>, bool),
    ReadGroup,
    ReadMachine(usize),
    List,
}

impl Call {
    pub(super) fn writes(&self) -> bool {
        matches!(self, Self::Size(.., Some(_)) | Self::Delete(.., false))
    }
}

/// A copy of the program, and what it has done.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct Copy {
    /// Its list of events, 0 if there is no such copy, and the field manager if it was the last one to write the size.
    pub(super) log: usize,
    wrote: Option<usize>,
    /// The Machines that it has deleted, without those for which it has lowered the size, and all of them.
    unpaid: Set,
    deleted: Set,
}

/// What has happened, as far as ends are judged by it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Tally {
    /// The Machines that a DeleteNodes has named, those that it named by their Nodes, and those for which it was OK.
    named: Set,
    by_node: Set,
    pub(super) accepted: Set,
    /// The Machines that may be replaced: their copy ended, their smaller size was refused, their DELETE had no answer, or
    /// somebody else deleted them. Those that had to wait for five seconds.
    crashed: Set,
    refused: Set,
    unanswered: Set,
    foreign: Set,
    slow: Set,
    /// The Machines with a Node that the controller took although nobody had named them: since its view lagged, since a
    /// named one was replaced before its smaller size was seen, and for no reason.
    unnamed: [usize; 3],
    was_behind: bool,
    /// A Machine that wasn't there at the beginning has joined, or was named or deleted.
    later_matters: bool,
    /// What mustn't happen at all.
    pub(super) fault: Option<&'static str>,
}

/// A state of the search.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct World {
    pub(super) now: Shown,
    /// What the controller may see: sizes, each with the Machines that were deleted before, and Machines, those that are
    /// being deleted, those without a Node, and those with one.
    pub(super) sizes: Vec<(usize, Set)>,
    pub(super) views: Vec<[Set; 3]>,
    pub(super) copies: [Copy; 2],
    pub(super) left: Bounds,
    pub(super) tally: Tally,
}

impl World {
    pub(super) fn new(left: Bounds) -> Self {
        let (size, versions, alive) = (left.of("nodes"), [1; SLOTS], one(left.of("nodes")) - 1);
        let now = Shown { alive, with_node: alive, versions, size, version: 1, ..Shown::default() };
        let (copies, tally, views) = (<[Copy; 2]>::default(), Tally::default(), vec![view(&now)]);
        Self { now, sizes: vec![(size, 0)], views, copies, left, tally }
    }

    /// Returns the state in which something has happened once more, if it may.
    pub(super) fn spend(&self, what: &str) -> Option<Self> {
        let left = self.left.0[position(what)].checked_sub(1)?;
        let mut then = self.clone();
        then.left.0[position(what)] = left;
        Some(then)
    }

    /// Returns the Machines that copies have deleted without lowering the size yet.
    fn unpaid(&self) -> Set {
        self.copies[0].unpaid | self.copies[1].unpaid
    }

    /// Changes a Machine, which the controller sees sooner or later.
    fn change(&mut self, machine: usize, change: impl FnOnce(&mut Shown, Set)) {
        let before = self.views.last().copied();
        self.now.versions[machine] += 1;
        change(&mut self.now, one(machine));
        keep(&mut self.views, view(&self.now));
        let is_born = self.now.alive & !self.now.with_node & one(machine) != 0;
        self.tally.later_matters |=
            self.left.is_later(one(machine)) && !is_born && self.views.last().copied() != before;
    }

    fn resize(&mut self, size: usize, by: Option<(usize, usize)>) {
        (self.now.size, self.now.version) = (size, self.now.version + 1);
        for (number, copy) in self.copies.iter_mut().enumerate() {
            copy.wrote = by.filter(|(writer, _)| *writer == number).map(|(_, wrote)| wrote);
        }
        keep(&mut self.sizes, (size, self.now.deleting | self.now.gone));
    }

    /// Carries out a call of a copy. Returns the code of its answer, and what that shows.
    pub(super) fn carry_out(&mut self, copy: usize, call: Call) -> (u16, Shown) {
        let (there, alive) = (self.now.there(), self.now.alive);
        match call {
            Call::Size(from, ..) if from != self.now.size => return (422, Shown::default()),
            Call::Size(from, to, Some(writer)) => {
                self.resize(to, Some((copy, writer)));
                self.account(copy, from, to);
            }
            Call::ReadMachine(it) | Call::Delete(it, ..) if there & one(it) == 0 => return (404, Shown::default()),
            Call::Delete(it, Some(seen), _) if seen != self.now.versions[it] => return (409, Shown::default()),
            Call::Delete(it, _, false) if alive & one(it) != 0 => self.delete(copy, it),
            _ => {}
        }
        let Shown { size, version, .. } = self.now;
        let writer = self.copies[copy].wrote.filter(|_| call == Call::ReadGroup);
        let shown = match call {
            Call::Size(..) | Call::ReadGroup => Shown { size, version, writer, ..Shown::default() },
            Call::ReadMachine(it) | Call::Delete(it, ..) => self.now.only(one(it)),
            Call::List => self.now.only(!0),
        };
        (200, shown)
    }

    fn delete(&mut self, copy: usize, machine: usize) {
        let (it, has_node) = (one(machine), self.now.with_node & one(machine) != 0);
        if has_node && self.tally.by_node & it == 0 {
            self.tally.fault = Some("a Machine with a Node was deleted as one without");
        }
        self.copies[copy].deleted |= it;
        self.copies[copy].unpaid |= it;
        self.change(machine, delete);
    }

    /// Judges a size that a copy has written.
    fn account(&mut self, copy: usize, from: usize, to: usize) {
        let (tally, copy) = (&mut self.tally, &mut self.copies[copy]);
        if to > from {
            tally.fault = Some("the size was raised");
        }
        for _ in to..from {
            if copy.unpaid != 0 {
                copy.unpaid &= copy.unpaid - 1;
            } else if tally.crashed != 0 {
                tally.crashed &= tally.crashed - 1;
            } else {
                tally.fault = Some("the size was lowered by more than this copy has deleted");
            }
        }
    }

    /// Notes that a call is refused or, if nothing is, that it has no answer.
    pub(super) fn note_failed(&mut self, copy: usize, call: Call, is_refused: bool) {
        match call {
            Call::Size(.., Some(_)) if is_refused => self.tally.refused |= self.copies[copy].unpaid,
            Call::Delete(machine, _, false) if !is_refused => self.tally.unanswered |= one(machine),
            _ => {}
        }
    }

    /// Notes that a copy has done nothing for five seconds; it isn't to, unless it has called.
    pub(super) fn note_waiting(&mut self, has_called: bool) {
        self.tally.slow |= self.unpaid();
        self.tally.fault = self.tally.fault.or((!has_called).then_some("a command never ends"));
    }

    /// Ends a copy: nobody lowers the size for what it has deleted.
    pub(super) fn crash(&mut self, copy: usize) {
        self.tally.crashed |= self.copies[copy].unpaid;
        self.copies[copy] = Copy::default();
    }

    /// Returns the commands that a copy may get whose watches show this.
    pub(super) fn asks(&self, shown: &Shown) -> Vec<(Command, Self)> {
        let is_one = |named: &Set| named & !shown.alive == 0 && each(*named).count() <= self.left.of("batch");
        let asked = |named: Set| {
            let (mut then, bare) = (self.spend("deletes")?, named & !shown.with_node);
            then.tally.named |= named & self.now.alive;
            then.tally.by_node |= named & !bare;
            then.tally.later_matters |= self.left.is_later(named);
            Some((Command(named, bare), then))
        };
        (1..=shown.alive).filter(is_one).filter_map(asked).collect()
    }

    /// Finds what controllers, the infrastructure and others do.
    pub(super) fn environment(&self, is_idle: bool) -> Vec<(&'static str, Self)> {
        let mut found = Vec::new();
        let mut change = |then: Option<Self>, machine, what, change: fn(&mut Shown, Set)| {
            let Some(mut then) = then else { return };
            then.change(machine, change);
            found.push((what, then));
        };
        let when = |is: bool| is.then(|| self.clone());
        let awaited = if self.sizes.len() > 1 { !0 } else { self.unpaid() & if is_idle { 0 } else { !0 } };
        for machine in each(self.now.deleting) {
            let it = one(machine);
            let is_early = self.left.of("prompt") > 0 && awaited & !self.tally.slow & it != 0;
            change(when(!is_early), machine, "a Machine is gone", |now, it| {
                (now.deleting, now.gone, now.with_node) = (now.deleting & !it, now.gone | it, now.with_node & !it);
                now.seen &= !it;
            });
            // The Machine controller has the cache of the MachineSet controller.
            let shows = self.views.iter().position(|[deleting, ..]| deleting & it != 0);
            if let Some(position) = shows.filter(|_| self.left.of("bare") > 0 && self.now.seen & it == 0) {
                let mut then = self.clone();
                then.views.drain(..position);
                change(Some(then), machine, "a deletion is seen", |now, it| now.seen |= it);
            }
        }
        for machine in each(self.now.alive) {
            let joins = self.spend("joins").filter(|_| self.now.with_node & one(machine) == 0);
            change(joins, machine, "a Machine joins", |now, it| now.with_node |= it);
            let mut deleted = self.spend("foreign-deletes");
            if let Some(then) = &mut deleted {
                then.tally.foreign |= one(machine);
            }
            change(deleted, machine, "somebody deletes a Machine", delete);
        }
        for at in 0..self.sizes.len() {
            found.extend(self.views.iter().filter_map(|view| self.reconcile(at, *view)));
        }
        found
    }

    /// Lets the MachineSet controller act on a size and a view. It takes Machines that are being deleted first, then
    /// those without a Node, then by name, and waits until it sees what it has done.
    fn reconcile(&self, at: usize, view: [Set; 3]) -> Option<(&'static str, Self)> {
        let (size, deleted) = self.sizes[at];
        let (mut then, there) = (self.clone(), view.into_iter().flat_map(each).count());
        if self.left.of("lags") == 0 && deleted & (view[1] | view[2]) != 0 {
            return None;
        }
        for victim in view.into_iter().flat_map(each).take(there.saturating_sub(size)) {
            then.take(view, victim);
        }
        for _ in there..size {
            // Worlds with more replacements than slots aren't searched.
            let new = each(!(then.now.there() | then.now.gone)).next()?;
            then.change(new, |now, it| now.alive |= it);
            let is_behind = self.unpaid() | self.tally.crashed != 0 || at + 1 < self.sizes.len();
            let gone = self.copies[0].deleted | self.copies[1].deleted | self.tally.crashed;
            then.tally.was_behind |= is_behind && self.now.gone & gone != 0;
        }
        if then.now != self.now {
            then.views.drain(..then.views.len() - 1);
        } else if at == 0 {
            return None;
        }
        then.sizes.drain(..at);
        Some(("the MachineSet controller acts", then))
    }

    fn take(&mut self, view: [Set; 3], victim: usize) {
        let (now, it) = (&self.now, one(victim));
        if now.alive & it == 0 {
            return;
        }
        if self.tally.named & it != 0 {
            self.tally.foreign |= it;
        } else if now.with_node & it != 0 {
            let lags = self.tally.named & (now.deleting | now.gone) & (view[1] | view[2]) != 0;
            let is_behind = self.tally.was_behind && self.tally.later_matters;
            self.tally.unnamed[if lags { 0 } else { 2 - usize::from(is_behind) }] += 1;
        }
        self.change(victim, delete);
    }

    /// Returns true if controllers and infrastructure have nothing to do.
    pub(super) fn is_at_rest(&self) -> bool {
        let Shown { alive, deleting, size, .. } = self.now;
        self.sizes.len() == 1 && each(alive).count() == size && deleting == 0
    }

    /// Returns what a user would notice of an end, in the order of [`super::HARMS`].
    pub(super) fn harms(&self) -> [bool; 7] {
        let Tally { crashed, refused, unanswered, accepted, fault, unnamed: [lagged, behind, unnamed], .. } =
            self.tally;
        let unpaid = self.unpaid();
        let foreign = self.tally.named & self.tally.foreign & self.now.gone;
        let is_late = behind > 0 && self.left.of("prompt") > 0;
        let without_cause = accepted & self.now.alive | unpaid & !refused & !unanswered;
        let is_wrong = fault.is_some() || without_cause != 0 || is_late || unnamed > 0;
        let causes = [crashed, unpaid & refused, unpaid & unanswered & !refused, foreign];
        let [crashed, refused, unanswered, foreign] = causes.map(|machines| machines != 0);
        [lagged > 0, behind > 0, crashed, refused, unanswered, foreign, is_wrong]
    }
}

fn view(now: &Shown) -> [Set; 3] {
    [now.deleting, now.alive & !now.with_node, now.alive & now.with_node]
}

fn delete(now: &mut Shown, machine: Set) {
    (now.alive, now.deleting) = (now.alive & !machine, now.deleting | machine);
}

/// Adds the newest of the versions that are kept.
fn keep<T: PartialEq>(versions: &mut Vec<T>, newest: T) {
    if versions.last() != Some(&newest) {
        versions.push(newest);
    }
    if versions.len() > LAG {
        versions.remove(0);
    }
}
