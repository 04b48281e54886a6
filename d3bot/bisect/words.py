"""A bisection in words: one sentence, and one line for each build tried.  Pure."""

from d3bot.spec import Bisection, Point


def conclusion(result: Bisection) -> str:
    """Return the result as one sentence that claims no more than was run."""
    good, bad, what = result.good, result.bad, result.subject
    if result.status == "found" and good is not None and bad is not None:
        gap = f", with {len(result.between)} between that gave no answer" if result.between else ""
        if result.direction == "broke":
            return f"Last good {what} {good.version}, first bad {bad.version}{gap}."
        return f"Last bad {what} {bad.version}, first good {good.version}{gap}."
    if result.status == "already-failing" and bad is not None:
        return f"Already failing at the oldest {what} that could be run, {bad.version}."
    if result.status == "not-failing-now" and good is not None:
        return f"Not failing now: {what} {good.version}, the newest that could be run, passes."
    if result.status == "still-failing" and bad is not None:
        return f"Still failing: {what} {bad.version}, the newest that could be run, fails in the same way."
    if result.status == "never-failed" and good is not None:
        return f"Not failing at the oldest {what} that could be run, {good.version}: there is nothing that was mended."
    if result.status == "out-of-time":
        known = [f"good {good.version}" if good else "", f"bad {bad.version}" if bad else ""]
        narrowed = " and ".join(filter(None, known))
        return f"Time is up: {what} is narrowed to {narrowed}." if narrowed else "Time is up before both ends were run."
    return f"No answer: no two builds of {what} gave one."


def describe(result: Bisection) -> list[str]:
    """Return the conclusion, what is known of the commits, and every build tried, a line each."""
    lines = [conclusion(result)]
    ends = (("good", result.good), ("bad", result.bad))
    lines += [f"{name}: {point.commit}" for name, point in ends if point is not None and point.commit]
    if result.compare:
        note = "" if result.compare_checked else " (not checked: upstream could not be asked)"
        lines.append(f"changes: {result.compare}{note}")
    lines += list(result.rechecked)
    if result.agrees is False:
        lines.append("The script does not agree with the answers above: take them as unverified.")
    lines += [f"note: {note}" for note in result.notes]
    lines += [_line(point) for point in result.points]
    return lines


def _line(point: Point) -> str:
    seen = f" {point.seen}" if point.seen else ""
    reason = f": {point.reason}" if point.reason else ""
    return f"  {point.version:<22} {point.answer}{seen}{reason}"
