class Rectangle:
    name = "rectangle"

    def __init__(self, width, height):
        self.width, self.height = width, height

    def __str__(self):
        return f"{self.name} {self.width * self.height}"


class Square(Rectangle):
    name = "square"

    def __init__(self, side):
        super().__init__(side, side)


def counter(step):
    count = 0

    def following():
        nonlocal count
        count += step
        return count

    return following


ones, tens = counter(1), counter(10)
print(ones(), ones(), tens(), ones(), tens())
print(Square(3), Rectangle(2, 5), sep="\n")
