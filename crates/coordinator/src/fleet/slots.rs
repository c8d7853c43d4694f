//! Which TaskManagers an attempt runs on, and with how many threads on each.
//!
//! Timely wants the same number of worker threads in every process, so an attempt is *k* processes
//! of *t* threads with *k · t* at least the job's parallelism. Threads beyond that are idle.

use tidegate_types::Millis;

use super::ManagerId;

/// Processes of an attempt: one on each of these TaskManagers, in order of their index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) managers: Vec<ManagerId>,
    /// Worker threads in each process; at least 1.
    pub(super) threads: u32,
}

/// A TaskManager that has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Free {
    pub(super) manager: ManagerId,
    pub(super) slots: u32,
    /// Until when it is better left out, since it could not reach another one; the later, the
    /// better.
    pub(super) estranged: Option<Millis>,
    /// The index of the process that it ran in the attempt before, if it did: what it keeps of its
    /// state is of use only at the same place.
    pub(super) index_before: Option<u32>,
    /// The last process that it was to start didn't come up.
    pub(super) is_unlucky: bool,
}

/// Chooses for `workers` worker threads: first of all no idle ones, then as few processes as
/// possible, since what stays in a process needs no network. `None` if there are too few slots.
pub(super) fn layout(workers: u32, free: &[Free]) -> Option<Layout> {
    let threads_max = free.iter().map(|free| free.slots).max()?.min(workers);
    let feasible = (1..=threads_max).filter_map(|threads| {
        let processes = workers.div_ceil(threads);
        let fits = free.iter().filter(|free| free.slots >= threads).count();
        let idle = u64::from(processes) * u64::from(threads) - u64::from(workers);
        (fits >= processes as usize).then_some((idle, processes, threads))
    });
    let (_, processes, threads) = feasible.min()?;
    Some(Layout {
        managers: seats(processes, threads, free),
        threads,
    })
}

/// Who runs which process: whoever did before, then whoever has been there longest. Whoever is
/// estranged, or has just not brought a process up, only if there are no others.
fn seats(processes: u32, threads: u32, free: &[Free]) -> Vec<ManagerId> {
    let mut fitting: Vec<Free> = free
        .iter()
        .copied()
        .filter(|f| f.slots >= threads)
        .collect();
    fitting.sort_by_key(|free| {
        let last_choice = free.estranged.is_some() || free.is_unlucky;
        let newcomer = free.index_before.is_none();
        (last_choice, free.estranged, newcomer, free.manager)
    });
    fitting.truncate(processes as usize);
    let mut seats: Vec<Option<ManagerId>> = vec![None; processes as usize];
    let mut unseated = Vec::new();
    for free in fitting {
        let before = free.index_before.map(|index| index as usize);
        match before.and_then(|index| seats.get_mut(index)) {
            Some(seat @ None) => *seat = Some(free.manager),
            _ => unseated.push(free.manager),
        }
    }
    let mut unseated = unseated.into_iter();
    let fill = |seat: Option<ManagerId>| seat.or_else(|| unseated.next());
    seats.into_iter().filter_map(fill).collect()
}

/// The most workers that TaskManagers with so many slots have room for, the same number on each
/// that takes part.
pub(super) fn capacity(slots: &[u32]) -> u32 {
    let mut slots = slots.to_vec();
    slots.sort_unstable_by(|a, b| b.cmp(a));
    // As many have room for the slots of one as come before it, and that one.
    let room = (1..).zip(slots);
    let room = room.map(|(count, threads): (u32, u32)| threads.saturating_mul(count));
    room.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn free(slots: &[u32]) -> Vec<Free> {
        let manager = |(id, &slots)| Free {
            manager: ManagerId(id),
            slots,
            estranged: None,
            index_before: None,
            is_unlucky: false,
        };
        (0..).zip(slots).map(manager).collect()
    }

    fn chosen(workers: u32, slots: &[u32]) -> Option<(usize, u32)> {
        layout(workers, &free(slots)).map(|layout| (layout.managers.len(), layout.threads))
    }

    #[test]
    fn of_those_that_could_not_reach_others_the_latest_comes_last() {
        let mut four = free(&[1, 1, 1, 1]);
        (four[0].estranged, four[1].estranged) = (Some(Millis(7)), Some(Millis(5)));
        let layout = layout(3, &four).unwrap();
        assert_eq!(layout.managers, [2, 3, 1].map(ManagerId));
    }

    #[test]
    fn no_thread_idles_if_that_can_be_had() {
        assert_eq!(chosen(3, &[2, 2, 2]), Some((3, 1)));
        assert_eq!(chosen(4, &[2, 2, 2]), Some((2, 2)));
        assert_eq!(chosen(5, &[2, 2, 2]), Some((3, 2)));
    }

    #[test]
    fn few_processes_are_better_than_many() {
        assert_eq!(chosen(4, &[4, 4, 4, 4]), Some((1, 4)));
        assert_eq!(chosen(4, &[1, 1, 2, 2]), Some((2, 2)));
    }

    #[test]
    fn too_few_slots_are_not_enough() {
        assert_eq!(chosen(4, &[1, 1, 1]), None);
        assert_eq!(chosen(1, &[]), None);
        // Five slots, but not five threads in processes of equal size.
        assert_eq!(chosen(5, &[4, 1]), None);
    }

    #[test]
    fn whoever_ran_a_process_runs_it_again() {
        let mut free = free(&[1, 1, 1, 1]);
        free[3].index_before = Some(0);
        free[1].index_before = Some(2);
        let managers = layout(3, &free).unwrap().managers;
        assert_eq!(managers, [ManagerId(3), ManagerId(0), ManagerId(1)]);
    }

    proptest! {
        #[test]
        fn a_layout_seats_each_manager_once_and_within_its_slots(
            workers in 1u32..20,
            managers in prop::collection::vec((0u32..6, prop::option::of(0u32..8)), 0..12),
        ) {
            let free: Vec<Free> = (0..)
                .zip(&managers)
                .map(|(id, &(slots, index_before))| Free {
                    manager: ManagerId(id),
                    slots,
                    estranged: None,
                    index_before,
                    is_unlucky: index_before.is_some_and(|before| before % 2 == 0),
                })
                .collect();
            let Some(layout) = layout(workers, &free) else {
                // One process per slot of size one is always a way, if there are enough managers.
                prop_assert!(free.iter().filter(|f| f.slots > 0).count() < workers as usize);
                return Ok(());
            };
            let mut seated = layout.managers.clone();
            seated.sort();
            seated.dedup();
            prop_assert_eq!(seated.len(), layout.managers.len());
            prop_assert!(layout.managers.len() as u32 * layout.threads >= workers);
            for manager in seated {
                prop_assert!(free[manager.0 as usize].slots >= layout.threads);
            }
        }
    }

    proptest! {
        #[test]
        fn whatever_has_room_has_a_layout(slots in prop::collection::vec(1u32..6, 0..6)) {
            let room = capacity(&slots);
            prop_assert!(room == 0 || chosen(room, &slots).is_some());
            prop_assert_eq!(chosen(room + 1, &slots), None);
        }
    }
}
