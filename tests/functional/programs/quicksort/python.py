def quicksort(items):
    if len(items) < 2:
        return items
    pivot, rest = items[0], items[1:]
    return quicksort([x for x in rest if x < pivot]) + [pivot] + quicksort([x for x in rest if x >= pivot])


print(*quicksort([33, -4, 15, 0, 99, 7, 7, -21, 58, 2, 41, 13]))
