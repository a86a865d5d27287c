# Sends a request with a token that the program gets by reference.
#
#     palisade secret set api
#     palisade run bash --access NAME examples/token.sh https://api.example.com/items
#
# `[access.NAME]` gives it: `egress = ["api.example.com:443"]`, `secrets = { API_TOKEN = "api" }`. The host gets the token. The
# output of the program does not contain it, even if the host sends it back.
curl -sS --max-time 20 --data "token=$API_TOKEN" "$1"
