# Functions cannot be values here; a counter is its own entry of an array, and a class a prefix of function names.
function count(name, step) { return counters[name] += step }
function rectangle_name() { return "rectangle" }
function square_name() { return "square" }
function show(kind, width, height,    name) {
  name = kind "_name"
  return @name() " " width * height
}

BEGIN {
  text = count("ones", 1) " " count("ones", 1)
  text = text " " count("tens", 10) " " count("ones", 1)
  print text " " count("tens", 10)
  print show("square", 3, 3)
  print show("rectangle", 2, 5)
}
