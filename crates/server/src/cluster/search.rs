//! Finding the JobManager that leads, among several addresses.
//!
//! Only the leader takes whoever asks. Where no other one listens, that is known at once; but a
//! machine that has vanished says nothing, and one JobManager of which that is so must not keep
//! anybody from the next. So they are asked side by side: each a moment after the one before, or as
//! soon as that has refused (the "happy eyeballs" of RFC 8305). The first that takes us is it. The
//! others are dropped, and with them their connections.

use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};

use super::refusal::Farewell;

/// How long one is asked before the next is asked besides: longer than an answer takes, so that as
/// a rule nobody is asked in vain.
pub(super) const HEAD_START: Duration = Duration::from_millis(250);

/// Why nobody was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotFound {
    /// One of them doesn't want us, and won't later.
    Refused {
        /// Where it is.
        address: String,
        /// What it says.
        cause: String,
    },
    /// None of them leads. The addresses with what stood in the way, in the order in which that was
    /// known.
    Nobody(Vec<(String, String)>),
}

/// Asks at these addresses until one takes us. `head_start` is how long each is asked alone.
/// Dropping the future ends whatever was begun.
///
/// # Errors
/// [`NotFound`]; after the first that refuses, no other one is looked at.
pub(super) async fn first_to_take<'a, Taken, Asked, Pause>(
    addresses: &'a [String],
    mut ask: impl FnMut(&'a str) -> Asked,
    mut head_start: impl FnMut() -> Pause,
) -> Result<(&'a str, Taken), NotFound>
where
    Asked: Future<Output = Result<Taken, Farewell>>,
    Pause: Future<Output = ()>,
{
    let mut left = addresses.iter();
    let mut asked = FuturesUnordered::new();
    let mut tried = Vec::new();
    loop {
        if let Some(address) = left.next() {
            let answer = ask(address);
            asked.push(async move { (address, answer.await) });
        }
        let answered = tokio::select! {
            biased;
            answered = asked.next() => answered,
            () = head_start(), if left.len() > 0 => continue,
        };
        match answered {
            Some((address, Ok(taken))) => return Ok((address, taken)),
            Some((address, Err(Farewell::Refused(cause)))) => {
                let address = address.clone();
                return Err(NotFound::Refused { address, cause });
            }
            Some((address, Err(Farewell::Gone(cause)))) => tried.push((address.clone(), cause)),
            None => return Err(NotFound::Nobody(tried)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::pin::pin;

    use futures::FutureExt;
    use futures::channel::oneshot;

    use super::*;

    type Answer = oneshot::Sender<Result<u32, Farewell>>;

    /// Everything that a search waits for, which happens when a test says so.
    #[derive(Default)]
    struct World {
        asked: RefCell<Vec<(String, Answer)>>,
        head_starts: RefCell<Vec<oneshot::Sender<()>>>,
    }

    impl World {
        fn search<'a>(
            &'a self,
            addresses: &'a [String],
        ) -> impl Future<Output = Result<(&'a str, u32), NotFound>> + 'a {
            let ask = |address: &str| {
                let (answer, answered) = oneshot::channel();
                self.asked.borrow_mut().push((address.to_owned(), answer));
                async { answered.await.expect("the test answers, or nobody waits") }
            };
            let head_start = || {
                let (over, waiting) = oneshot::channel();
                self.head_starts.borrow_mut().push(over);
                async { waiting.await.expect("the test ends it, or nobody waits") }
            };
            first_to_take(addresses, ask, head_start)
        }

        fn asked(&self) -> Vec<String> {
            let asked = self.asked.borrow();
            asked.iter().map(|(address, _)| address.clone()).collect()
        }

        /// One may not be asked any more.
        fn answer(&self, address: &str, answer: Result<u32, Farewell>) {
            let mut asked = self.asked.borrow_mut();
            let index = asked.iter().position(|(asked, _)| asked == address);
            let _ = asked.remove(index.unwrap()).1.send(answer);
        }

        fn end_head_start(&self) {
            let over = self.head_starts.borrow_mut().pop();
            over.unwrap().send(()).unwrap();
        }

        /// Those that are still being asked.
        fn waited_for(&self) -> usize {
            let asked = self.asked.borrow();
            asked
                .iter()
                .filter(|(_, answer)| !answer.is_canceled())
                .count()
        }
    }

    fn addresses<const N: usize>(names: [&str; N]) -> Vec<String> {
        names.map(str::to_owned).to_vec()
    }

    fn gone() -> Result<u32, Farewell> {
        Err(Farewell::Gone("gone".to_owned()))
    }

    // The machine of the first has vanished.
    #[test]
    fn one_that_says_nothing_keeps_nobody_from_the_next() {
        let (world, addresses) = (World::default(), addresses(["silent", "leads", "third"]));
        let mut search = Box::pin(world.search(&addresses));
        assert_eq!(search.as_mut().now_or_never(), None);
        assert_eq!(world.asked(), ["silent"], "it has a head start");
        world.end_head_start();
        assert_eq!(search.as_mut().now_or_never(), None);
        assert_eq!(world.asked(), ["silent", "leads"]);
        world.answer("leads", Ok(7));
        assert_eq!(search.as_mut().now_or_never(), Some(Ok(("leads", 7))));
        drop(search);
        assert_eq!(world.waited_for(), 0, "the others are dropped");
    }

    #[test]
    fn one_that_is_slow_may_still_be_it() {
        let (world, addresses) = (World::default(), addresses(["slow", "second"]));
        let mut search = pin!(world.search(&addresses));
        assert_eq!(search.as_mut().now_or_never(), None);
        world.end_head_start();
        assert_eq!(search.as_mut().now_or_never(), None);
        world.answer("second", gone());
        assert_eq!(search.as_mut().now_or_never(), None);
        world.answer("slow", Ok(1));
        assert_eq!(search.as_mut().now_or_never(), Some(Ok(("slow", 1))));
    }

    // Nothing listens there; that is known without waiting.
    #[test]
    fn where_nobody_is_the_next_is_asked_at_once_and_all_is_told() {
        let (world, addresses) = (World::default(), addresses(["a", "b", "c"]));
        let mut search = pin!(world.search(&addresses));
        for address in ["a", "b", "c"] {
            assert_eq!(search.as_mut().now_or_never(), None);
            assert_eq!(world.asked(), [address]);
            world.answer(address, gone());
        }
        let tried = ["a", "b", "c"].map(|a| (a.to_owned(), "gone".to_owned()));
        let nobody = NotFound::Nobody(tried.to_vec());
        assert_eq!(search.as_mut().now_or_never(), Some(Err(nobody)));
        let nobody = NotFound::Nobody(Vec::new());
        assert_eq!(world.search(&[]).now_or_never(), Some(Err(nobody)));
    }

    #[test]
    fn a_refusal_ends_the_search() {
        let (world, addresses) = (World::default(), addresses(["other build", "second"]));
        let mut search = pin!(world.search(&addresses));
        assert_eq!(search.as_mut().now_or_never(), None);
        world.answer("other build", Err(Farewell::Refused("no".to_owned())));
        let refused = NotFound::Refused {
            address: "other build".to_owned(),
            cause: "no".to_owned(),
        };
        assert_eq!(search.as_mut().now_or_never(), Some(Err(refused)));
        assert!(world.asked().is_empty(), "nobody else was asked");
    }
}
